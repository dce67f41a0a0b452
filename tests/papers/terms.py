"""Parameters of the parts of a Transformer, by hand: d is the model width, f the inner one."""

from typing import NamedTuple


class Size(NamedTuple):
    """Width d and inner width f."""

    d: int
    f: int


BASE, BIG = Size(512, 2048), Size(1024, 4096)


def attention(d: int) -> int:
    """Query, key, value and output, with biases."""
    return 4 * (d * d + d)


def feed_forward(size: Size) -> int:
    """Both maps, with biases."""
    d, f = size
    return d * f + f + f * d + d


def norm(d: int) -> int:
    """Scale and offset."""
    return 2 * d


def encoder_layer(size: Size) -> int:
    """Self-attention, feed-forward map and a norm of each."""
    return attention(size.d) + feed_forward(size) + 2 * norm(size.d)


def decoder_layer(size: Size) -> int:
    """The same with cross-attention and its norm."""
    return encoder_layer(size) + attention(size.d) + norm(size.d)
