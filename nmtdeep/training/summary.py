"""What a training says of itself before its first update."""

from __future__ import annotations

import torch

from nmtdeep.config import Recipe
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.model.transformer import Transformer
from nmtdeep.training.display import describe
from nmtdeep.training.footprint import mapped_bytes, memory_parts, product_bytes
from nmtdeep.training.state import Progress


def parameter_count(model: torch.nn.Module) -> int:
    """Trainable numbers; a shared table counts once."""
    return sum(parameter.numel() for parameter in model.parameters())


def in_units(size: float) -> str:
    """Bytes in decimal units, in words."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def opening(
    recipe: Recipe,
    data: DataDirectory,
    model: Transformer,
    device: torch.device,
    dtype: torch.dtype,
    progress: Progress,
    *,
    whole: Recipe | None = None,
    processes: int = 1,
) -> str:
    """Model, data, device and what was dropped, as a small table.

    Args:
        recipe: of the stage that begins.
        whole: the recipe with all stages, if there are any.
    """
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    count = torch.get_num_threads()
    parts = [f"{processes} processes"] * (processes > 1)
    parts += [f"{count} thread{'s' * (count > 1)}"] * (device.type == "cpu")
    workers = "".join(f", {part}" for part in [" of ".join(parts)] if part)
    parameters = parameter_count(model)
    memory = sum(
        memory_parts(
            recipe,
            model,
            device=device.type,
            product=product_bytes(dtype),
            data=mapped_bytes(data),
        ).values()
    )
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
            f"{data.path}: {len(data.corpus('train')):,} training pairs, "
            f"{len(data.corpus('valid')):,} for validation",
        ),
        *_dropped(data),
        (
            "updates",
            f"of {batches.tokens_per_update:,} padded tokens, {batches.max_tokens:,} at once",
        ),
        ("device", f"{name}{workers}, matrix products in {str(dtype).removeprefix('torch.')}"),
        ("memory", f"about {in_units(memory)}" + " in each process" * (processes > 1)),
        *_stages(whole or recipe),
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
    said = ", ".join(f"{reason['count']:,} {name}" for name, reason in reasons.items())
    return [("dropped", said or "no pair")]
