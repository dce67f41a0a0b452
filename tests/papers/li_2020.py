"""Li et al. 2020: parameter counts of every row, term by term."""

from __future__ import annotations

from tests.papers.terms import BASE, BIG, Size, decoder_layer, encoder_layer, norm

# Sizes that the printed counts of each table imply; the paper does not print them.
VOCABULARIES = {
    "li-2020/wmt16-en-de": (33_300, 33_300),
    "li-2020/wmt14-en-fr": (44_500, 44_500),
}
# Printed as 63M, but the table's other rows fix the vocabulary, and with it 61M.
CONTRADICTED = {"li-2020/wmt16-en-de/pre-base": "61M"}


def count(name: str, size: Size, encoder: int, decoder: int) -> int:
    """Layers, top norms and embeddings."""
    layers = encoder * encoder_layer(size) + decoder * decoder_layer(size)
    types, _ = VOCABULARIES[name.rpartition("/")[0]]
    return layers + 2 * norm(size.d) + types * size.d


ROWS = {
    "li-2020/wmt16-en-de/pre-base": (BASE, 6, 6),
    "li-2020/wmt16-en-de/pre-big": (BIG, 6, 6),
    "li-2020/wmt16-en-de/deep-24": (BASE, 24, 6),
    "li-2020/wmt16-en-de/deep-48": (BASE, 48, 6),
    "li-2020/wmt14-en-fr/pre-base": (BASE, 6, 6),
    "li-2020/wmt14-en-fr/pre-big": (BIG, 6, 6),
    "li-2020/wmt14-en-fr/deep-24": (BASE, 24, 6),
    "li-2020/wmt14-en-fr/deep-48": (BASE, 48, 6),
}
COUNTS = {name: count(name, *row) for name, row in ROWS.items()}
