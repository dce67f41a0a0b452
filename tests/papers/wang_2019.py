"""Wang et al. 2019: parameter counts of every row, term by term."""

from __future__ import annotations

from tests.papers.terms import BASE, BIG, Size, decoder_layer, encoder_layer, norm

# Sizes that the printed counts of each table imply; the paper does not print them. It says
# "44k + 33k" of NIST; 78.5k in all agrees with every row.
VOCABULARIES = {
    "wang-2019/wmt16-en-de": (33_950, 33_950),
    "wang-2019/nist-zh-en": (44_900, 33_600),
    "wang-2019/wmt18-zh-en": (60_000, 53_285),
}
# Rows that the paper itself contradicts: what the formulas say, rounded as printed.
CONTRADICTED: dict[str, str] = {}


def count(name: str, size: Size, encoder: int, decoder: int) -> int:
    """Layers, top norms and embeddings."""
    layers = encoder * encoder_layer(size) + decoder * decoder_layer(size)
    top = 0 if "/post-" in name else 2 * norm(size.d)
    source, target = VOCABULARIES[name.rpartition("/")[0]]
    tables = target if source == target else source + target
    return layers + top + tables * size.d


ROWS = {
    "wang-2019/wmt16-en-de/post-base": (BASE, 6, 6),
    "wang-2019/wmt16-en-de/pre-base": (BASE, 6, 6),
    "wang-2019/wmt16-en-de/post-big": (BIG, 6, 6),
    "wang-2019/wmt16-en-de/pre-big": (BIG, 6, 6),
    "wang-2019/wmt16-en-de/post-20": (BASE, 20, 6),
    "wang-2019/wmt16-en-de/pre-20": (BASE, 20, 6),
    "wang-2019/nist-zh-en/pre-base": (BASE, 6, 6),
    "wang-2019/nist-zh-en/pre-big": (BIG, 6, 6),
    "wang-2019/nist-zh-en/pre-25": (BASE, 25, 6),
    "wang-2019/wmt18-zh-en/post-base": (BASE, 6, 6),
    "wang-2019/wmt18-zh-en/pre-base": (BASE, 6, 6),
    "wang-2019/wmt18-zh-en/pre-big": (BIG, 6, 6),
}
COUNTS = {name: count(name, *row) for name, row in ROWS.items()}
