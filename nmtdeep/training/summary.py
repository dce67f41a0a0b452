"""What a training shows before its first update."""

from __future__ import annotations

import torch

from nmtdeep.config import Recipe
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.model.transformer import Transformer
from nmtdeep.tables import describe
from nmtdeep.training.estimate import estimate
from nmtdeep.training.ranks import Ranks
from nmtdeep.training.state import Progress
from nmtdeep.units import counted, size

PRECISIONS = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


def opening(
    recipe: Recipe,
    data: DataDirectory,
    model: Transformer,
    ranks: Ranks,
    dtype: torch.dtype,
    progress: Progress,
    whole: Recipe,
) -> str:
    """Model, data, device and what was dropped, as a small table.

    Args:
        recipe: of the stage that begins.
        dtype: of the matrix products.
        whole: the recipe with all stages.
    """
    device = ranks.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    parts = [f"{ranks.size} processes"] * (ranks.size > 1)
    parts += [counted(torch.get_num_threads(), "thread")] * (device.type == "cpu")
    workers = "".join(f", {part}" for part in [" of ".join(parts)] if part)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    corpus = data.corpus("train")
    mapped = sum(
        side.tokens.nbytes + side.offsets.nbytes for side in (corpus.source, corpus.target)
    )
    memory = sum(estimate(recipe, model, device=device.type, dtype=dtype, data=mapped).values())
    batches = recipe.training.batches
    sides = (data.pipeline.source, data.pipeline.target)
    sizes = [f"{len(side.vocabulary):,} {side.language} types" for side in sides]
    if recipe.text.vocabulary.sharing == "shared":
        sizes = [f"{len(sides[0].vocabulary):,} types, shared"]
    lines = [
        (
            "model",
            f"{recipe.model.encoder.depth}+{recipe.model.decoder.depth} layers, width "
            f"{recipe.model.width}, {parameters:,} parameters",
        ),
        ("vocabulary", " and ".join(sizes)),
        (
            "corpus",
            f"{data.path}: {len(corpus):,} training pairs, "
            f"{len(data.corpus('valid')):,} for validation",
        ),
        *_dropped(data),
        (
            "batches",
            f"{batches.tokens_per_update:,} padded tokens per update, "
            f"at most {batches.max_tokens:,} at once",
        ),
        ("device", f"{name}{workers}, matrix products in {PRECISIONS[dtype]}"),
        ("memory", f"about {size(memory)}" + " in each process" * (ranks.size > 1)),
        *_stages(whole),
        ("start", f"update {progress.update}" if progress.update else "fresh"),
    ]
    return describe(lines)


def _stages(recipe: Recipe) -> list[tuple[str, str]]:
    """Depths from stage to stage."""
    models = [recipe.at_stage(number).model for number in range(len(recipe.training.stages))]
    depths = [f"{model.encoder.depth}+{model.decoder.depth}" for model in models]
    return [("stages", ", ".join(depths) + " layers")] if depths else []


def _dropped(data: DataDirectory) -> list[tuple[str, str]]:
    """Training pairs that preprocessing dropped, by reason."""
    reasons = data.index["report"]["splits"]["train"]["reasons"]
    counts = [(name, reason["count"]) for name, reason in reasons.items()]
    said = [f"{counted(count, 'pair')} ({name})" for name, count in counts]
    return [("dropped", ", ".join(said) or "0 pairs")]
