"""The Transformer: two stacks, embeddings and an output, assembled from the seven slots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nmtdeep.model.layers.bridge import Bridge
from nmtdeep.model.layers.cache import CacheIndex, States
from nmtdeep.model.layers.combination import Combination, normed
from nmtdeep.model.layers.embedding import TokenEmbedding
from nmtdeep.model.layers.initial_values import InitMatrix
from nmtdeep.model.layers.linear import Linear
from nmtdeep.model.layers.positions import Sinusoidal
from nmtdeep.model.layers.residual import Residual
from nmtdeep.model.layers.sublayer import Context
from nmtdeep.packing import Packing


class Layer(nn.Module):
    """Wrapped sublayers, one after the other.

    Args:
        drop: probability that a training pass skips the layer: LayerDrop (Fan et al. 2020).

    Attributes:
        keeps: what a training pass keeps for the backward pass: all activations, or the layer's
            input, from which the rest is recomputed, dropout included (Chen et al. 2016).
        branches: how many outputs a combination of sublayers has of the layer.
        compiled: the forward pass of training, compiled; None: not compiled.
    """

    keeps: Literal["all", "input"] = "all"
    compiled: Callable[[Tensor, Context, None, int | None], Tensor] | None = None

    def __init__(self, sublayers: Sequence[Residual], *, drop: float = 0.0) -> None:
        super().__init__()
        self.drop = drop
        self.sublayers = nn.ModuleList(sublayers)
        self.branches = len(sublayers)

    def __iter__(self) -> Iterator[Residual]:
        """The residual wrappers in order."""
        return iter(self.sublayers)  # type: ignore[arg-type]

    def init_matrices(self) -> Iterator[InitMatrix]:
        for wrapper in self:
            yield from wrapper.sublayer.init_matrices()

    def start(self, context: Context) -> States:
        """Each sublayer's state before the first decoding step."""
        return States([wrapper.sublayer.start(context) for wrapper in self])

    def forward(
        self, x: Tensor, context: Context, states: States | None = None, branch: int | None = None
    ) -> Tensor:
        """`(sentences, positions, width)` to the same.

        Args:
            branch: number of the only sublayer to apply, without its residual; None: all.
        """
        if self.training and self.drop and branch is None and torch.rand(()) < self.drop:
            # Zero gradients and not none, so that all ranks and batches add the same ones.
            return x + 0.0 * torch.stack([each.sum() for each in self.parameters()]).sum()
        if self.compiled is not None and self.training and states is None:
            return self.compiled(x, context, None, branch)
        if self.keeps == "input" and self.training and torch.is_grad_enabled():
            # Dropout draws from torch's generator alone, whose state is kept with the input.
            return checkpoint(self._through, x, context, states, branch, use_reentrant=False)
        return self._through(x, context, states, branch)

    def _through(
        self, x: Tensor, context: Context, states: States | None, branch: int | None
    ) -> Tensor:
        parts = [None] * len(self.sublayers) if states is None else states.parts
        if branch is not None:
            return self.sublayers[branch].branch(x, context, parts[branch])  # type: ignore
        for wrapper, state in zip(self, parts, strict=True):
            x = wrapper(x, context, state)
        return x


class Stack(nn.Module):
    """Layers, the combination that feeds them, and the norm on top.

    Args:
        layers: bottom first.
        combination: what each layer, or each sublayer, reads of those below it.
        norm: applied to the top; `nn.Identity()` where the layers end with a norm.
    """

    def __init__(self, layers: Sequence[Layer], combination: Combination, norm: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.combination = combination
        self.norm = norm

    def __iter__(self) -> Iterator[Layer]:
        """The layers, bottom first."""
        return iter(self.layers)  # type: ignore[arg-type]

    def forward(
        self, x: Tensor, contexts: Sequence[Context], states: Sequence[States] | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """`x` `(sentences, positions, width)` through all layers, with a context for each.

        Returns:
            The combination after the last layer, normalized; and y_0 (`x`) and y_1 ... y_L, raw:
            the layers' outputs, or where sublayers are connected, what is read above each layer.
        """
        outputs, whole = [x], self.combination.connects == "layers"
        history = self.combination.start(x)
        read = self.combination.read(history)
        for number, (layer, context) in enumerate(zip(self, contexts, strict=True)):
            state = None if states is None else states[number]
            # Numbers of the sublayers that are connected; None for the whole layer.
            branches = [None] if whole else range(layer.branches)
            for branch in branches:
                output = layer(read, context, state, branch)
                history = self.combination.add(history, output)
                read = self.combination.read(history)
            outputs.append(output if whole else read)
        return self.norm(read), outputs


@dataclass(frozen=True)
class Encoded:
    """A batch of encoded sources: one memory per decoder layer, and the mask of all.

    Attributes:
        memories: each `(sentences, source, width)`.
        mask: `(sentences, 1, 1, source)`, True at real tokens; None without padding.
        packing: the sentences, if they are packed, `(1, tokens, width)`.
    """

    memories: list[Tensor]
    mask: Tensor | None
    packing: Packing | None = None

    def contexts(
        self, index: CacheIndex | None = None, packing: Packing | None = None
    ) -> list[Context]:
        """The context of each decoder layer, with the packing of the target."""
        return [
            Context(None, memory, self.mask, packing, self.packing, index)
            for memory in self.memories
        ]


class DecoderState(States):
    """Everything the decoder remembers between steps.

    Args:
        layers: the states of each layer.
        index: which cache entries each hypothesis descends from.
    """

    def __init__(self, layers: Sequence[States], index: CacheIndex) -> None:
        super().__init__([index, *layers])
        self.layers = layers
        self.index = index
        self.position = 0


class Transformer(nn.Module):
    """Encoder-decoder Transformer (Vaswani et al. 2017) of any depth.

    Args:
        source_embedding: ids to `(sentences, source, width)`.
        target_embedding: the same for the target; may share its table.
        encoder: stack over the source.
        bridge: encoder outputs to one memory per decoder layer.
        decoder: causal stack over the target.
        output: `(..., width)` to logits over the target vocabulary.
        pad: id that fills sentences up to the longest of a batch.
    """

    def __init__(
        self,
        *,
        source_embedding: TokenEmbedding,
        target_embedding: TokenEmbedding,
        encoder: Stack,
        bridge: Bridge,
        decoder: Stack,
        output: Linear,
        pad: int,
    ) -> None:
        super().__init__()
        self.source_embedding = source_embedding
        self.target_embedding = target_embedding
        self.encoder = encoder
        self.bridge = bridge
        self.decoder = decoder
        self.output = output
        self.pad = pad

    def keep(self, what: Literal["all", "input"]) -> None:
        """Choose what each layer keeps of a training pass; see `Layer`."""
        for layer in (*self.encoder, *self.decoder):
            layer.keeps = what

    def compile_layers(self, **options: Any) -> None:
        """Let `torch.compile` fuse the passes over memory of each layer's forward pass of training.

        Layers of one stack share a graph, which holds for batches of all shapes; so do the norms of
        layer combinations.

        Args:
            options: of `torch.compile`.
        """
        for layer in (*self.encoder, *self.decoder):
            layer.compiled = torch.compile(layer._through, dynamic=True, **options)
        for stack in (self.encoder, self.decoder):
            stack.combination.compiled = torch.compile(normed, dynamic=True, **options)

    def reserve(self, source: int, target: int) -> None:
        """Make tables of positions for sentences of so many tokens."""
        device = self.output.weight.device
        for embedding, length in ((self.source_embedding, source), (self.target_embedding, target)):
            if isinstance(embedding.positions, Sinusoidal):
                embedding.positions.reserve(length, device)

    def encode(self, source: Tensor) -> Encoded:
        """Encode ids `(sentences, source)`, padded at the end."""
        return self.encode_deeply(source)[0]

    def encode_deeply(
        self, source: Tensor, packing: Packing | None = None
    ) -> tuple[Encoded, list[Tensor]]:
        """The result of `encode`, and y_0 ... y_L, the outputs of embedding and encoder layers.

        Args:
            source: ids `(sentences, source)`, padded at the end; or packed `(1, tokens)`.
            packing: the sentences, if they are packed.
        """
        mask = None if packing else (source != self.pad)[:, None, None, :]
        contexts = [Context(mask=mask, packing=packing)] * len(self.encoder.layers)
        top, outputs = self.encoder(self.source_embedding(source, packing=packing), contexts)
        return Encoded(self.bridge(top, outputs), mask, packing), outputs

    def decode(self, target: Tensor, encoded: Encoded, packing: Packing | None = None) -> Tensor:
        """Hidden states `(sentences, target, width)` that predict the token after each of `target`.

        `target` `(sentences, target)` starts with the end-of-sentence id and is padded at the end,
        where causality hides it; hidden states at padded positions are meaningless. Packed, it is
        `(1, tokens)`, and so is the source.
        """
        x = self.target_embedding(target, packing=packing)
        return self.decoder(x, encoded.contexts(packing=packing))[0]

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """`decode(target, encode(source))`: hidden states, to be projected by the loss."""
        return self.decode(target, self.encode(source))

    def start(self, encoded: Encoded) -> DecoderState:
        """State before the first step."""
        index = CacheIndex(encoded.memories[0])
        contexts = encoded.contexts(index)
        layers = [
            layer.start(context) for layer, context in zip(self.decoder, contexts, strict=True)
        ]
        return DecoderState(layers, index)

    def step(self, tokens: Tensor, state: DecoderState) -> Tensor:
        """Logits `(rows, types)` after the newest `tokens` `(rows,)`; advances the state by one.

        Rows are hypotheses, as many for each sentence, grouped by sentence.
        """
        x = self.target_embedding(tokens[:, None], state.position)
        x = x.view(state.index.sentences, -1, x.shape[2])
        state.index.add(x.shape[1])
        contexts = [Context()] * len(self.decoder.layers)
        top, _ = self.decoder(x, contexts, state.layers)
        state.position += 1
        return self.output(top.flatten(0, 1))
