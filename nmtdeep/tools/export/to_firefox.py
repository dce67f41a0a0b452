"""A student in the format of Firefox's engine (fxtranslate 0.5): Marian's binary file, 8 bits.

Names, order and padding of the file are those that the engine's source reads
(github.com/mozilla/translations, inference-rs/crates/fxtranslate: model.rs, weights.rs, engine.rs).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nmtdeep.config import slots
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.config.model import Model
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.text import SentencePiece as Tokenizer
from nmtdeep.config.text import Text
from nmtdeep.decoding.searcher import Searcher
from nmtdeep.decoding.translator import Translator
from nmtdeep.errors import Problem
from nmtdeep.model.layers.attention import CrossAttention, SelfAttention
from nmtdeep.model.layers.feed_forward import FeedForward
from nmtdeep.model.layers.linear import Linear
from nmtdeep.model.layers.residual import DeepNorm, Normed
from nmtdeep.model.layers.rounding import LARGEST, factor
from nmtdeep.model.layers.ssru import Ssru
from nmtdeep.model.quantization import roundings
from nmtdeep.model.transformer import Layer, Transformer
from nmtdeep.text.pipeline import Side, TextPipeline
from nmtdeep.text.sentencepiece import SentencePiece
from nmtdeep.text.vocabulary import EOS, PAD, SPECIALS, UNK
from nmtdeep.tools.export.weights import other_values

VERSION, ALIGNMENT = 1, 256
FLOAT, BYTES, INTEGERS = 0x404, 0x101, 0x4101
# The engine's search: the best next token, at most ceil(2 n) + 4 of them and the end.
GREEDY = DecodingOptions(
    beam=1, max_length_factor=2.0, max_length_constant=5, device="cpu", precision="fp32"
)
# Added to the logit of a type that no translation may have.
NEVER = -1e9
# The values that the engine computes, by key of the section `model`.
VALUES: dict[str, tuple[object, ...]] = {
    "encoder.residual": ("post_norm", "deep_norm"),
    "decoder.residual": ("post_norm", "deep_norm"),
    "encoder.combination": ("residual",),
    "decoder.combination": ("residual",),
    "bridge": ("top_layer",),
    "positions": ("sinusoidal",),
    "activation": ("relu",),
    "norm": ("layer_norm",),
    "qk_norm": ("none",),
    "embeddings.sharing": ("all", "decoder"),
    "embeddings.bias": (False,),
    "embeddings.scale": ("sqrt_width",),
    "embeddings.start": ("zero",),
}
SUBLAYERS = {
    "encoder": ["self_attention", "feed_forward"],
    "decoder": ["ssru", "cross_attention", "feed_forward"],
}
LARGEST_EPSILON = 1e-5  # the engine's is 1e-6, added to variances of about 1


class Item(NamedTuple):
    """A named array of the file; `data` has no padding behind it."""

    name: str
    kind: int
    shape: Sequence[int]
    data: bytes


class Product(NamedTuple):
    """A product of integers: rows of a linear map, by the engine's names.

    Attributes:
        scale: by which weight and bias are multiplied; a residual's constant is part of it.
        block: which of the equal parts of the rows, of so many `blocks`.
    """

    name: str
    bias: str
    linear: Linear
    scale: float = 1.0
    block: int = 0
    blocks: int = 1


def unsupported(recipe: Recipe) -> list[Problem]:
    """Everything in a recipe that the engine cannot compute, with the change that would help."""
    return [*_unsupported_model(recipe.model), *_unsupported_text(recipe.text)]


def _unsupported_model(model: Model) -> Iterator[Problem]:
    yield from other_values(model, VALUES, SUBLAYERS)
    if isinstance(model.positions, slots.Sinusoidal) and model.positions != slots.Sinusoidal():
        yield Problem("other sinusoids", "model.positions", "leave out its fields")
    for key in ("width", "heads", "feed_forward"):
        sizes = [getattr(side, key) or model.width for side in (model.encoder, model.decoder)]
        if sizes[0] != sizes[1]:
            what = f"{sizes[0]} in the encoder and {sizes[1]} in the decoder"
            yield Problem(what, f"model.decoder.{key}", "use one value")
    if model.norm_epsilon > LARGEST_EPSILON:
        yield Problem(f"{model.norm_epsilon:g}", "model.norm_epsilon", "set it to 1e-6")


def _unsupported_text(text: Text) -> Iterator[Problem]:
    tokenizer = text.tokenizer
    if not isinstance(tokenizer, Tokenizer):
        yield Problem("words of Moses", "text.tokenizer", "set it to sentencepiece")
    elif tokenizer.model != "unigram":
        yield Problem(tokenizer.model, "text.tokenizer.model", "set it to unigram")
    elif tokenizer.byte_fallback:
        what = "the engine does not spell characters as bytes"
        yield Problem(what, "text.tokenizer.byte_fallback", "set it to false")
    if text.lowercase:
        yield Problem("the engine keeps the case", "text.lowercase", "set it to false")
    if text.tags:
        yield Problem("the engine has no tags of corpora", "text.tags", "leave them out")


def greedy_translator(model: Transformer, pipeline: TextPipeline) -> Translator:
    """A translator that searches as the engine does, by the modules of `model` as they are."""
    fillers = pipeline.target.vocabulary.fillers
    return Translator(Searcher([model], GREEDY, fillers=fillers), pipeline)


def activation_factors(
    model: Transformer, pipeline: TextPipeline, lines: Sequence[str]
) -> dict[nn.Module, float]:
    """127 / max |x| of the inputs x of each linear map in greedy translations of `lines`."""
    largest: dict[nn.Module, float] = {}

    def note(module: nn.Module, inputs: Any) -> None:
        x: Tensor = inputs[0]
        largest[module] = max(largest.get(module, 0.0), float(x.detach().abs().max()))

    with ExitStack() as hooks:
        for module in model.modules():
            if isinstance(module, Linear):
                hooks.enter_context(module.register_forward_pre_hook(note))
        list(greedy_translator(model, pipeline).translate(lines))
    return {module: LARGEST / (value or 1.0) for module, value in largest.items()}


def round_by(model: Transformer, factors: Mapping[nn.Module, float]) -> None:
    """Round weights, embeddings and inputs as the exported file does."""
    for module, rounding in roundings(model):
        rounding.activation = factors.get(module)
        module.rounding = rounding


def clear_unused(model: Transformer, pipeline: TextPipeline) -> None:
    """Set the rows of types that no text has to zero, so that they do not widen the range."""
    sides = (pipeline.source, model.source_embedding), (pipeline.target, model.target_embedding)
    with torch.no_grad():
        for side, embedding in sides:
            embedding.weight[[PAD, *side.vocabulary.fillers]] = 0


def vocabularies(sides: tuple[Side, Side]) -> tuple[str, str]:
    """Names of the files of the source's and the target's SentencePiece model."""
    if sides[0].model == sides[1].model:
        return "vocab.spm", "vocab.spm"
    return "srcvocab.spm", "trgvocab.spm"


def products(transformer: Transformer) -> Iterator[Product]:
    """Every product of integers of the layers."""
    for prefix, residual in _residuals(transformer):
        # norm(a x + f(x)) = norm(x + f(x) / a)
        scale = 1 / residual.alpha if isinstance(residual, DeepNorm) else 1.0
        match residual.sublayer:
            case SelfAttention(qkv=qkv, output=output):
                for block, name in enumerate("qkv"):
                    names = f"{prefix}self_W{name}", f"{prefix}self_b{name}"
                    yield Product(*names, qkv, 1, block, 3)
                yield Product(f"{prefix}self_Wo", f"{prefix}self_bo", output, scale)
            case CrossAttention(query=query, key_value=key_value, output=output):
                yield Product(f"{prefix}context_Wq", f"{prefix}context_bq", query)
                for block, name in enumerate("kv"):
                    names = f"{prefix}context_W{name}", f"{prefix}context_b{name}"
                    yield Product(*names, key_value, 1, block, 2)
                yield Product(f"{prefix}context_Wo", f"{prefix}context_bo", output, scale)
            case Ssru(candidate=candidate, gate=gate):  # max(0, c) / a = max(0, c / a)
                yield Product(f"{prefix}rnn_W", "", candidate, scale)
                yield Product(f"{prefix}rnn_Wf", f"{prefix}rnn_bf", gate)
            case FeedForward(inner=inner, outer=outer):
                yield Product(f"{prefix}ffn_W1", f"{prefix}ffn_b1", inner)
                yield Product(f"{prefix}ffn_W2", f"{prefix}ffn_b2", outer, scale)
            case other:
                raise ValueError(f"{type(other).__name__} is not supported")


def _residuals(transformer: Transformer) -> Iterator[tuple[str, Normed]]:
    """The residual wrappers, and what their names begin with: `encoder_l1_`."""
    for side, stack in (("encoder", transformer.encoder), ("decoder", transformer.decoder)):
        layer: Layer
        for number, layer in enumerate(stack, 1):
            for residual in layer:
                assert isinstance(residual, Normed)
                yield f"{side}_l{number}_", residual


NORMS = {SelfAttention: "self_Wo", CrossAttention: "context_Wo", Ssru: "rnn_ffn"}


def items(
    transformer: Transformer,
    model: Model,
    sides: tuple[Side, Side],
    factors: Mapping[nn.Module, float],
) -> Iterator[Item]:
    """The arrays of the file.

    Args:
        sides: source and target, each with its SentencePiece model.
        factors: of the inputs of linear maps, of the output's too, by `activation_factors`.
    """
    for prefix, residual in _residuals(transformer):
        name = prefix + NORMS.get(type(residual.sublayer), "ffn_ffn")
        yield _float(f"{name}_ln_scale", residual.norm.weight)
        assert isinstance(residual.norm, nn.LayerNorm)
        yield _float(f"{name}_ln_bias", residual.norm.bias)
    for product in products(transformer):
        linear, block, blocks = product.linear, product.block, product.blocks
        yield _integers(product.name, product.scale * linear.weight.chunk(blocks)[block].t())
        yield _float(f"{product.name}_QuantMultA", torch.tensor([factors[linear]]))
        if product.bias:
            bias = _bias(linear).chunk(blocks)[block]
            yield _float(product.bias, product.scale * bias)
    yield from _tables(transformer, sides, factors[transformer.output])
    yield Item("special:model.yml", BYTES, (), _yaml(model, sides))


def _tables(
    transformer: Transformer, sides: tuple[Side, Side], output_factor: float
) -> Iterator[Item]:
    """Embeddings, their rows in the order of the SentencePiece models, and the output's bias."""
    source, target = transformer.source_embedding.weight, transformer.target_embedding.weight
    rows = [_rows(side) for side in sides]
    bias = _bias(transformer.output)
    bias[UNK] = NEVER
    yield _float("decoder_ff_logit_out_b", bias[rows[1]])
    tables = [table[ids] for table, ids in zip((source, target), rows, strict=True)]
    if source is target and sides[0].vocabulary == sides[1].vocabulary:
        yield _integers("Wemb", tables[1])
        yield _float("none_QuantMultA", torch.tensor([output_factor]))
        return
    yield _integers("encoder_Wemb", tables[0])
    yield _integers("decoder_Wemb", tables[1])
    scalar = np.int8(LARGEST).tobytes() + np.float32(LARGEST / output_factor).tobytes()
    yield Item("decoder_Wemb_QuantMultA", INTEGERS, (1, 1), scalar)


def _bias(linear: Linear) -> Tensor:
    """`(outputs,)`, a copy; zeros if there is none."""
    if linear.bias is None:
        return linear.weight.new_zeros(len(linear.weight))
    return linear.bias.detach().clone()


def sentencepiece_of(side: Side) -> SentencePiece:
    """The SentencePiece model of a side that the engine supports."""
    assert isinstance(side.model, SentencePiece)
    return side.model


def _rows(side: Side) -> Tensor:
    """`(pieces,)` ids of our vocabulary in the order of the SentencePiece model, or `<unk>`'s."""
    pieces = sentencepiece_of(side).all_pieces
    ids = side.vocabulary.ids(pieces)
    return torch.tensor(
        [EOS if piece == SPECIALS[EOS] else id for piece, id in zip(pieces, ids, strict=True)]
    )


def _yaml(model: Model, sides: tuple[Side, Side]) -> bytes:
    values = {
        "version": "nmtdeep",
        "type": "transformer",
        "dim-emb": model.width,
        "transformer-heads": model.encoder.heads,
        "enc-depth": model.encoder.depth,
        "dec-depth": model.decoder.depth,
        "transformer-dim-ffn": model.encoder.feed_forward,
        "dim-vocabs": f"[{', '.join(str(len(_rows(side))) for side in sides)}]",
    }
    return "".join(f"{key}: {value}\n" for key, value in values.items()).encode() + b"\0"


def _float(name: str, tensor: Tensor) -> Item:
    data = tensor.detach().float().cpu().numpy()
    return Item(name, FLOAT, (1, data.size), data.tobytes())


def _integers(name: str, tensor: Tensor) -> Item:
    """`(inputs, outputs)` of a product, which is stored transposed; or a table as it is."""
    values = tensor.detach().float().cpu()
    q = factor(values)
    stored = values if name.endswith("Wemb") else values.t()
    integers: NDArray[np.int8] = (stored * q).round().to(torch.int8).contiguous().numpy()
    return Item(name, INTEGERS, tuple(values.shape), integers.tobytes() + q.numpy().tobytes())


def pack(items: Sequence[Item]) -> bytes:
    """The bytes of the file: numbers of all parts, then names, shapes and data."""
    # Data begin at a multiple of 256, and arrays of integers fill one.
    data = [
        item.data + bytes(-len(item.data) % ALIGNMENT) if item.kind == INTEGERS else item.data
        for item in items
    ]
    names = [item.name.encode() + b"\0" for item in items]
    shapes = [item.shape or (len(item.data),) for item in items]
    head = struct.pack("<QQ", VERSION, len(items))
    for item, name, shape, part in zip(items, names, shapes, data, strict=True):
        head += struct.pack("<QQQQ", len(name), item.kind, len(shape), len(part))
    head += b"".join(names)
    head += b"".join(struct.pack(f"<{len(shape)}i", *shape) for shape in shapes)
    gap = -(len(head) + 8) % ALIGNMENT
    return head + struct.pack("<Q", gap) + bytes(gap) + b"".join(data)
