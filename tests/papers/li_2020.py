"""Li et al. 2020: parameter counts of every row, term by term."""

from typing import NamedTuple

from tests.papers.terms import BASE, BIG, Size, decoder_layer, encoder_layer, norm

# Sizes that the printed counts of each table imply; the paper does not print them.
VOCABULARIES = {
    "li-2020/wmt16-en-de": (33_300, 33_300),
    "li-2020/wmt14-en-fr": (44_500, 44_500),
}
# Printed as 63M, but the table's other rows fix the vocabulary, and with it 61M.
CONTRADICTED = {"li-2020/wmt16-en-de/pre-base": "61M"}
CLIP, HEAD = 8, 64


class Row(NamedTuple):
    """Size, depths, how many blocks the encoder has, and relative positions."""

    size: Size
    encoder: int
    decoder: int
    blocks: int = 0
    relative: bool = False


def blocks(size: Size, number: int) -> int:
    """A norm of each block's output, and the square of weights with a row for the embedding."""
    return number * norm(size.d) + (number + 1) ** 2 if number else 0


def relative() -> int:
    """A vector of one head's width for each distance up to the clip, forwards and backwards."""
    return (2 * CLIP + 1) * HEAD


def count(name: str, row: Row) -> int:
    """Layers, top norms, blocks, positions and embeddings."""
    size = row.size
    layers = row.encoder * encoder_layer(size) + row.decoder * decoder_layer(size)
    positions = (row.encoder + row.decoder) * relative() if row.relative else 0
    types, _ = VOCABULARIES[name.rpartition("/")[0]]
    return layers + 2 * norm(size.d) + blocks(size, row.blocks) + positions + types * size.d


# Both tables have the same rows.
MODELS = {
    "pre-base": Row(BASE, 6, 6),
    "pre-big": Row(BIG, 6, 6),
    "deep-24": Row(BASE, 24, 6),
    "sdt-24": Row(BASE, 24, 6, blocks=4),
    "deep-rpr-24": Row(BASE, 24, 6, relative=True),
    "sdt-rpr-24": Row(BASE, 24, 6, blocks=4, relative=True),
    "deep-48": Row(BASE, 48, 6),
    "sdt-48": Row(BASE, 48, 6, blocks=8),
    "deep-rpr-48": Row(BASE, 48, 6, relative=True),
    "sdt-rpr-48": Row(BASE, 48, 6, blocks=8, relative=True),
}
ROWS = {f"{table}/{name}": row for table in VOCABULARIES for name, row in MODELS.items()} | {
    "li-2020/wmt16-en-de/deep-24-big": Row(BIG, 24, 6),
    "li-2020/wmt16-en-de/sdt-24-big": Row(BIG, 24, 6, blocks=4),
    "li-2020/wmt16-en-de/deep-rpr-24-big": Row(BIG, 24, 6, relative=True),
    "li-2020/wmt16-en-de/sdt-rpr-24-big": Row(BIG, 24, 6, blocks=4, relative=True),
}
COUNTS = {name: count(name, row) for name, row in ROWS.items()}
