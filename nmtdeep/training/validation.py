"""Validation: loss, BLEU, chrF and COMET of the validation set during a training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.config.recipe import Recipe
from nmtdeep.data.batch import read_batch
from nmtdeep.data.batching import cut_by_tokens, sort_by_length
from nmtdeep.data.corpus import DataDirectory, ParallelCorpus
from nmtdeep.decoding.searcher import Searcher
from nmtdeep.decoding.translator import Translator
from nmtdeep.model.transformer import Transformer
from nmtdeep.scoring import Score, score_texts, scorers
from nmtdeep.scoring.comet import Comet
from nmtdeep.scoring.metrics import validation_metrics
from nmtdeep.training.graphs import pays_to_compile
from nmtdeep.training.loss import batch_loss
from nmtdeep.training.setup import Setup

# Tokens by which a translation may exceed a multiple of its source while validating.
LONGEST = 20


@dataclass(frozen=True)
class Validation:
    """Figures of one validation; losses in nats per target token.

    Attributes:
        scores: `bleu`, in the recipe's tokenization, `chrf` and, if the recipe names a model,
            `comet` of translations; empty if nothing was translated.
        sample: a source line and its translation.
    """

    loss: float
    nll: float
    scores: Mapping[str, Score]
    sample: tuple[str, str] | None

    def score(self, best_by: str) -> float:
        """The figure that picks the best checkpoint, larger is better: a score or minus loss."""
        return self.scores[best_by].value if best_by in self.scores else -self.loss


def validate(model: Transformer, setup: Setup) -> Validation:
    """Measure `model`, which is left in evaluation mode, on the validation set."""
    recipe, data = setup.recipe, setup.data
    model.eval()
    loss, nll = corpus_loss(model, data.corpus("valid"), setup)
    # A model without finite numbers cannot translate.
    if not recipe.training.validation.bleu or not math.isfinite(loss):
        return Validation(loss, nll, {}, None)
    fillers = data.pipeline.target.vocabulary.fillers
    searcher = Searcher([model], _options(recipe), fillers=fillers)
    translator = Translator(searcher, data.pipeline)
    translations = translated(translator, data, "valid")
    comet = comet_of(setup, "valid")
    names = validation_metrics(recipe.training.validation, recipe.text)
    metrics = scorers(names, comet=comet)
    scores = score_texts(translations, [data.references("valid")], metrics)
    third = len(translations) // 3
    sample = (data.sources("valid")[third], translations[third])
    return Validation(loss, nll, dict(zip(("bleu", "chrf", "comet"), scores, strict=False)), sample)


def comet_of(setup: Setup, split: str) -> Comet | None:
    """The recipe's COMET model as a metric of translations of a split; None if it has none.

    Raises:
        UserError: if it cannot be read.
    """
    name = setup.recipe.training.validation.comet
    return Comet(name, setup.data.sources(split), device=str(setup.device)) if name else None


def _options(recipe: Recipe) -> DecodingOptions:
    """The recipe's options with the beam of a validation, and a limit on the length.

    An untrained model does not end its sentences. Limits that hardly depend on the source, such as
    fairseq's 0 and 200, would make its validation much longer than its training.
    """
    options = DecodingOptions(beam=recipe.training.validation.beam)
    if recipe.decoding.max_length_constant > LONGEST:
        factor = max(recipe.decoding.max_length_factor, 2.0)
        limits = {"max_length_factor": factor, "max_length_constant": LONGEST}
        options = options.model_copy(update=limits)
    return options.with_recipe(recipe)


def translated(
    translator: Translator, data: DataDirectory, split: str, *, first: int | None = None
) -> list[str]:
    """Translations of a split, or of its `first` lines, in the form of its references."""
    form = data.pipeline.reference_form
    sources = data.sources(split)[:first]
    return [line.candidates[0].as_text(form) for line in translator.translate(sources)]


def longest_line(recipe: Recipe) -> int:
    """Subwords of a side that the loss takes: as many as in a search or in a training pair."""
    return max(recipe.decoding.max_source_tokens, recipe.text.clean.max_length)


def long_lines(corpus: ParallelCorpus, recipe: Recipe) -> str:
    """How many pairs of the validation set are longer than that; empty if none is."""
    lengths, most = np.maximum(corpus.source.lengths, corpus.target.lengths), longest_line(recipe)
    count = int((lengths > most + 1).sum())
    return f"{count:,} of valid, of which the loss takes the first {most} subwords" if count else ""


@torch.inference_mode()
def corpus_loss(model: Transformer, corpus: ParallelCorpus, setup: Setup) -> tuple[float, float]:
    """Smoothed loss and negative log-likelihood of a corpus, nats per target token.

    Each side counts as far as `longest_line` allows: memory grows with the square of its length.
    """
    recipe, sides = setup.recipe, (corpus.source, corpus.target)
    corpus = ParallelCorpus(*(replace(side, most=longest_line(recipe) + 1) for side in sides))
    lengths = np.stack((corpus.source.lengths, corpus.target.lengths))
    tokens, total = 0, torch.zeros(2, dtype=torch.float64, device=setup.device)
    compute = partial(
        batch_loss,
        model,
        smoothing=recipe.training.label_smoothing,
        dtype=setup.dtype,
        compiles=pays_to_compile(setup),
    )
    for indices in cut_by_tokens(lengths.max(axis=0), sort_by_length(lengths), setup.max_tokens):
        batch = read_batch(corpus, indices).to(setup.device)
        sums = compute(batch)
        total += torch.stack((sums.smoothed, sums.nll)).double()  # read by the host at the end
        tokens += batch.target_tokens
    smoothed, nll = total.tolist()
    return smoothed / tokens, nll / tokens
