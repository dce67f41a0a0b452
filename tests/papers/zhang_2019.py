"""Zhang et al. 2019: parameter counts of every row, term by term."""

from __future__ import annotations

from tests.papers.terms import BASE, Size, decoder_layer, encoder_layer, norm

# Sizes that the printed counts of each table imply; the paper does not print them.
VOCABULARIES = {"zhang-2019/wmt14-en-de": (30_000, 25_022)}
# Rows that the paper itself contradicts: what the formulas say, rounded as printed.
CONTRADICTED: dict[str, str] = {}


def count(name: str, size: Size, encoder: int, decoder: int) -> int:
    """Layers, top norms, embeddings and the embedding bias."""
    layers = encoder * encoder_layer(size) + decoder * decoder_layer(size)
    top = 0 if "/post-" in name else 2 * norm(size.d)
    return layers + top + (sum(VOCABULARIES[name.rpartition("/")[0]]) + 1) * size.d


ROWS = {
    "zhang-2019/wmt14-en-de/post-base": (BASE, 6, 6),
    "zhang-2019/wmt14-en-de/pre-base": (BASE, 6, 6),
    "zhang-2019/wmt14-en-de/pre-12": (BASE, 12, 12),
    "zhang-2019/wmt14-en-de/pre-20": (BASE, 20, 20),
}
COUNTS = {name: count(name, *row) for name, row in ROWS.items()}
