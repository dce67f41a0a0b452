"""Zhang et al. 2019: parameter counts of every row, term by term."""

from collections.abc import Callable

from tests.papers.terms import BASE, BIG, Size, attention, decoder_layer, encoder_layer, norm

# Sizes that the printed counts of each table imply; the paper does not print them.
VOCABULARIES = {
    "zhang-2019/wmt14-en-de": (30_000, 25_022),
    "zhang-2019/wmt14-en-fr": (31_350, 31_350),
    "zhang-2019/iwslt14-de-en": (18_400, 14_000),
    "zhang-2019/wmt18-en-fi": (20_200, 20_000),
    "zhang-2019/wmt18-zh-en": (32_000, 31_700),
}
# Printed as 72.2M, but gates add 1.05M a layer to the 66.00M of row 4.
CONTRADICTED = {"zhang-2019/wmt14-en-de/matt-6-aan": "72.3M"}


def merged(size: Size) -> int:
    """A decoder layer of merged attention, which shares all its maps with cross-attention."""
    return encoder_layer(size)


def with_self_attention(size: Size) -> int:
    """The same with an attention of its own instead of the average."""
    return merged(size) + attention(size.d)


def with_gates(size: Size) -> int:
    """The same with input and forget gates of input and average."""
    return merged(size) + 2 * size.d * 2 * size.d + 2 * size.d


def count(name: str, size: Size, depth: int, decoder: Callable[[Size], int]) -> int:
    """Layers, top norms, embeddings and the embedding bias."""
    layers = depth * (encoder_layer(size) + decoder(size))
    top = 2 * norm(size.d) if "/pre-" in name else 0
    return layers + top + (sum(VOCABULARIES[name.rpartition("/")[0]]) + 1) * size.d


ROWS = {
    "zhang-2019/wmt14-en-de/pre-base": (BASE, 6, decoder_layer),
    "zhang-2019/wmt14-en-de/ds-6": (BASE, 6, decoder_layer),
    "zhang-2019/wmt14-en-de/matt-6": (BASE, 6, merged),
    "zhang-2019/wmt14-en-de/ds-6-matt": (BASE, 6, merged),
    "zhang-2019/wmt14-en-de/matt-6-self": (BASE, 6, with_self_attention),
    "zhang-2019/wmt14-en-de/matt-6-aan": (BASE, 6, with_gates),
    "zhang-2019/wmt14-en-de/post-base-50k": (BASE, 6, decoder_layer),
    "zhang-2019/wmt14-en-de/ds-12": (BASE, 12, decoder_layer),
    "zhang-2019/wmt14-en-de/pre-12": (BASE, 12, decoder_layer),
    "zhang-2019/wmt14-en-de/ds-20": (BASE, 20, decoder_layer),
    "zhang-2019/wmt14-en-de/pre-20": (BASE, 20, decoder_layer),
    "zhang-2019/wmt14-en-de/ds-20-matt": (BASE, 20, merged),
    "zhang-2019/wmt14-en-de/post-big": (BIG, 6, decoder_layer),
    "zhang-2019/wmt14-en-de/ds-12-matt-big": (BIG, 12, merged),
    "zhang-2019/wmt14-en-de/ds-20-matt-big": (BIG, 20, merged),
}
for table in VOCABULARIES:
    ROWS[f"{table}/post-base"] = (BASE, 6, decoder_layer)
    ROWS[f"{table}/ds-12-matt"] = (BASE, 12, merged)
COUNTS = {name: count(name, *row) for name, row in ROWS.items()}
