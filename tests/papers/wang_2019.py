"""Wang et al. 2019: parameter counts of every row, term by term."""

from tests.papers.terms import BASE, BIG, Size, decoder_layer, encoder_layer, norm

# Sizes that the printed counts of each table imply; the paper does not print them. It says
# "44k + 33k" of NIST; 78.5k in all agrees with every row.
VOCABULARIES = {
    "wang-2019/wmt16-en-de": (33_950, 33_950),
    "wang-2019/nist-zh-en": (44_900, 33_600),
    "wang-2019/wmt18-zh-en": (60_000, 53_285),
}
# Rows that the paper itself contradicts: what the formulas say, rounded as printed. Base and Big of
# Table 4 fix its vocabulary; 161.5M and 177.2M need about 1,200 types fewer.
CONTRADICTED = {
    "wang-2019/wmt18-zh-en/pre-dlcl-25": "162.1M",
    "wang-2019/wmt18-zh-en/pre-dlcl-30": "177.8M",
}


def combination(d: int, layers: int) -> int:
    """A square of weights over the embedding and all layers, and a norm of each layer."""
    return (layers + 1) ** 2 + layers * norm(d)


def count(name: str, size: Size, encoder: int, decoder: int) -> int:
    """Layers, what DLCL adds to each stack, top norms and embeddings."""
    layers = encoder * encoder_layer(size) + decoder * decoder_layer(size)
    if "-dlcl-" in name:
        layers += combination(size.d, encoder) + combination(size.d, decoder)
    top = 0 if "/post-" in name else 2 * norm(size.d)
    source, target = VOCABULARIES[name.rpartition("/")[0]]
    tables = target if source == target else source + target
    return layers + top + tables * size.d


ROWS = {
    "wang-2019/wmt16-en-de/post-base": (BASE, 6, 6),
    "wang-2019/wmt16-en-de/post-big": (BIG, 6, 6),
    "wang-2019/wmt16-en-de/post-20": (BASE, 20, 6),
    "wang-2019/wmt16-en-de/post-dlcl-base": (BASE, 6, 6),
    "wang-2019/wmt16-en-de/post-dlcl-25": (BASE, 25, 6),
    "wang-2019/wmt16-en-de/pre-base": (BASE, 6, 6),
    "wang-2019/wmt16-en-de/pre-big": (BIG, 6, 6),
    "wang-2019/wmt16-en-de/pre-20": (BASE, 20, 6),
    "wang-2019/wmt16-en-de/pre-dlcl-base": (BASE, 6, 6),
    "wang-2019/wmt16-en-de/pre-dlcl-30": (BASE, 30, 6),
    "wang-2019/nist-zh-en/pre-base": (BASE, 6, 6),
    "wang-2019/nist-zh-en/pre-big": (BIG, 6, 6),
    "wang-2019/nist-zh-en/pre-25": (BASE, 25, 6),
    "wang-2019/nist-zh-en/pre-dlcl-base": (BASE, 6, 6),
    "wang-2019/nist-zh-en/pre-dlcl-25": (BASE, 25, 6),
    "wang-2019/wmt18-zh-en/post-base": (BASE, 6, 6),
    "wang-2019/wmt18-zh-en/pre-base": (BASE, 6, 6),
    "wang-2019/wmt18-zh-en/pre-big": (BIG, 6, 6),
    "wang-2019/wmt18-zh-en/pre-dlcl-25": (BASE, 25, 6),
    "wang-2019/wmt18-zh-en/pre-dlcl-30": (BASE, 30, 6),
}
COUNTS = {name: count(name, *row) for name, row in ROWS.items()}
