"""Our weights in CTranslate2's format, for measurements: plain Transformers, pre- or post-norm."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ctranslate2
import torch
from ctranslate2.converters.converter import Converter
from ctranslate2.specs.common_spec import Activation
from ctranslate2.specs.transformer_spec import TransformerSpec
from torch import Tensor
from weights import plain

from nmtdeep.config.recipe import Recipe
from nmtdeep.decoding.settings import Settings
from nmtdeep.model.layers.positions import sinusoids
from nmtdeep.model.transformer import Transformer
from nmtdeep.text.vocabulary import EOS, PAD, SPECIALS

POSITIONS = 2048  # CTranslate2 raises beyond its table


class FromOurs(Converter):
    """Writes `model` so that CTranslate2 computes the same.

    Args:
        tokens: the vocabulary, which both sides share.
    """

    def __init__(self, recipe: Recipe, model: Transformer, tokens: Sequence[str]) -> None:
        wrong = list(obstacles(recipe))
        if wrong:
            raise ValueError(f"CTranslate2 has no {', no '.join(wrong)}")
        self.recipe, self.tokens = recipe, list(tokens)
        self.parameters = {
            name: value.detach().float().cpu()
            for name, value in plain(dict(model.named_parameters())).items()
        }

    def _load(self) -> TransformerSpec:
        model = self.recipe.model
        pre_norm = model.encoder.residual.type == "pre_norm"
        spec = TransformerSpec.from_config(
            (model.encoder.depth, model.decoder.depth),
            model.encoder.heads,
            pre_norm=pre_norm,
            activation=Activation.RELU,
        )
        table = self.parameters["embedding.weight"]
        positions = sinusoids(0, POSITIONS, model.width).float()
        spec.encoder.embeddings[0].weight = table
        spec.decoder.embeddings.weight = table
        spec.decoder.projection.weight = table
        for name, stack in (("encoder", spec.encoder), ("decoder", spec.decoder)):
            stack.position_encodings.encodings = positions
            if pre_norm:
                self._norm(stack.layer_norm, f"{name}_norm")
            for number, layer in enumerate(stack.layer):
                self._layer(layer, f"{name}.{number}")
        self._configure(spec)
        return spec

    def _configure(self, spec: TransformerSpec) -> None:
        end, unknown = SPECIALS[EOS], SPECIALS[2]
        spec.config.layer_norm_epsilon = self.recipe.model.norm_epsilon
        spec.config.decoder_start_token = end
        spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = end, end, unknown
        spec.register_source_vocabulary(self.tokens)
        spec.register_target_vocabulary(self.tokens)

    def _layer(self, layer: Any, name: str) -> None:
        crosses = hasattr(layer, "attention")
        own = layer.self_attention
        self._linear(own.linear[0], f"{name}.self_attention.inputs")
        self._linear(own.linear[1], f"{name}.self_attention.output")
        self._norm(own.layer_norm, f"{name}.norms.0")
        if crosses:
            width = self.recipe.model.width
            inputs = f"{name}.cross_attention.inputs"
            self._linear(layer.attention.linear[0], inputs, slice(0, width))
            self._linear(layer.attention.linear[1], inputs, slice(width, None))
            self._linear(layer.attention.linear[2], f"{name}.cross_attention.output")
            self._norm(layer.attention.layer_norm, f"{name}.norms.1")
        self._linear(layer.ffn.linear_0, f"{name}.feed_forward.0")
        self._linear(layer.ffn.linear_1, f"{name}.feed_forward.2")
        self._norm(layer.ffn.layer_norm, f"{name}.norms.{2 if crosses else 1}")

    def _linear(self, spec: Any, name: str, rows: slice = slice(None)) -> None:
        spec.weight = self._take(f"{name}.weight", rows)
        spec.bias = self._take(f"{name}.bias", rows)

    def _norm(self, spec: Any, name: str) -> None:
        spec.gamma, spec.beta = self._take(f"{name}.weight"), self._take(f"{name}.bias")

    def _take(self, name: str, rows: slice = slice(None)) -> Tensor:
        return self.parameters[name][rows].contiguous()


def obstacles(recipe: Recipe) -> list[str]:
    """What of the recipe CTranslate2 cannot express."""
    model = recipe.model
    stacks = (model.encoder, model.decoder)
    sublayers = [part.type for part in model.decoder.sublayers]
    residuals = {stack.residual.type for stack in stacks}
    checks = {
        f"residual {' and '.join(sorted(residuals))}": residuals <= {"pre_norm", "post_norm"}
        and len(residuals) == 1,
        "combination of layers": all(stack.combination.type == "residual" for stack in stacks),
        f"decoder of {', '.join(sublayers)}": sublayers
        == ["self_attention", "cross_attention", "feed_forward"],
        f"bridge {model.bridge.type}": model.bridge.type == "top_layer",
        f"positions {model.positions.type}": model.positions.type == "sinusoidal",
        "separate tables": model.embeddings.sharing == "all" and not model.embeddings.bias,
        "stacks of different heads": model.encoder.heads == model.decoder.heads,
        "linear maps without bias": model.biases == "all",
    }
    return [what for what, fine in checks.items() if not fine]


def open_translator(
    folder: Path, *, device: torch.device, compute: str, threads: int, at_once: int = 1
) -> ctranslate2.Translator:
    """The converted model in `folder`, `at_once` batches at a time on `threads` threads in all."""
    everything = torch.get_num_threads()
    translator = ctranslate2.Translator(
        str(folder),
        device=device.type,
        device_index=device.index or 0,
        compute_type=compute,
        inter_threads=at_once,
        intra_threads=max(1, threads // at_once),
    )
    # It sets the number of OpenMP threads of the whole process, torch's too.
    torch.set_num_threads(everything)
    return translator


def translate(
    translator: ctranslate2.Translator,
    sources: Sequence[Sequence[str]],
    settings: Settings,
    *,
    batch: int,
) -> list[list[str]]:
    """Tokens of the best translations, without the end; it sorts by length itself.

    Our rules in its words; its length limit is one for all, that of the longest source.
    """
    longest = max(map(len, sources))
    found = translator.translate_batch(
        list(sources),
        max_batch_size=batch,
        beam_size=settings.beam,
        length_penalty=settings.lenpen if settings.lenpen_form == "length" else 0.0,
        suppress_sequences=[[SPECIALS[PAD]]],
        max_input_length=0,
        max_decoding_length=int(longest * settings.max_length_factor)
        + settings.max_length_constant,
        min_decoding_length=1,
    )
    return [one.hypotheses[0] for one in found]
