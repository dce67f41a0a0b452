"""The promises of the slots as checks, for the tests of packages that add variants.

    import pytest
    from nmtdeep import testing

    @pytest.mark.parametrize("check", testing.CHECKS)
    def test_promise(check, tmp_path):
        check(["model.encoder.combination=package.name"], tmp_path)

A check takes overrides of a recipe and an empty folder. It builds a tiny model with them, of width
16 and 3+2 layers, and raises an AssertionError if the promise is broken.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import as_file, files
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor
from torch.testing import assert_close

from nmtdeep import averaging, checkpoint
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.config.load import load_recipe
from nmtdeep.config.recipe import Recipe
from nmtdeep.decoding.translator import Translator
from nmtdeep.devices import kept_settings
from nmtdeep.inspection import inspect
from nmtdeep.model.build import build, initialize
from nmtdeep.model.growth import carry_over, layer_maps
from nmtdeep.model.initialization import Sample
from nmtdeep.model.transformer import Transformer
from nmtdeep.preprocessing.inputs import CorpusFiles
from nmtdeep.preprocessing.preprocess import Preprocessing
from nmtdeep.text.vocabulary import EOS, PAD
from nmtdeep.training.loop import train
from nmtdeep.training.setup import TrainingJob

Check = Callable[[Sequence[str], Path], None]
TYPES = 24
SOURCE = torch.tensor([[5, 9, 4, 7, EOS], [8, 3, EOS, PAD, PAD], [EOS, PAD, PAD, PAD, PAD]])
TARGET = torch.tensor([[EOS, 6, 5, 19], [EOS, 12, 7, 4], [EOS, 9, PAD, PAD]])
# Real tokens of each sentence, in source and target.
LENGTHS = ((5, 4), (3, 4), (1, 2))
TINY = (
    "model.width=16",
    "model.encoder={depth: 3, heads: 2, feed_forward: 24}",
    "model.decoder={depth: 2, heads: 2, feed_forward: 24}",
    "model.dropout={embedding: 0.1, residual: 0.1, attention: 0.1}",
    "text.bpe.merges=200",
    "training.max_updates=6",
    "training.batches={tokens_per_update: 300, group_tokens: 300, max_tokens: null}",
    "training.schedule={type: inverse_square_root, lr: 1e-3, warmup_updates: 4}",
    "training.precision=fp32",
    "training.validation={every: 3, bleu: false, best_by: loss}",
    "training.checkpoints={every: 3, average_last: 0}",
    "training.log_every=1",
    "training.log_to=[]",
)


def stepwise_equals_parallel(overrides: Sequence[str], folder: Path) -> None:
    """Decoding step by step has the logits of one pass over the whole target."""
    _check_steps(_model(overrides))


def _check_steps(model: Transformer) -> None:
    state = model.start(model.encode(SOURCE))
    steps = [model.step(TARGET[:, place], state) for place in range(TARGET.shape[1])]
    for step, whole in zip(_real(torch.stack(steps, dim=1)), _real(_logits(model)), strict=True):
        assert_close(step, whole, rtol=0, atol=1e-10)


def batched_equals_alone(overrides: Sequence[str], folder: Path) -> None:
    """A sentence has the same logits in a batch as alone."""
    model = _model(overrides)
    together = _logits(model)
    for number, (source, target) in enumerate(LENGTHS):
        alone = _logits(model, SOURCE[[number], :source], TARGET[[number], :target])
        assert_close(together[number, :target], alone[0], rtol=0, atol=1e-10)


def padding_is_not_read(overrides: Sequence[str], folder: Path) -> None:
    """Other embeddings of padding, and more padding, change nothing."""
    model = _model(overrides)
    before = _logits(model)
    with torch.no_grad():
        model.source_embedding.weight[PAD] = model.target_embedding.weight[PAD] = 100.0
    # The output's row for padding may be the same table: its logit is left out.
    for first, second in zip(_real(before), _real(_logits(model)), strict=True):
        assert_close(first[:, PAD + 1 :], second[:, PAD + 1 :], rtol=0, atol=1e-10)


def future_is_not_read(overrides: Sequence[str], folder: Path) -> None:
    """A token changes the logits from its own position on, and none before."""
    model = _model(overrides)
    before = _logits(model)
    for place in range(1, TARGET.shape[1]):
        edited = TARGET.clone()
        edited[:, place] = 11
        after = _logits(model, target=edited)
        assert_close(after[:, :place], before[:, :place], rtol=0, atol=1e-10)
        assert not after[:, place].equal(before[:, place]), f"position {place} is not read"


def parameters_are_initialized(overrides: Sequence[str], folder: Path) -> None:
    """The initializer covers every parameter, with finite numbers that the seed determines."""
    first, second = (checkpoint.weights(_initialized(overrides)) for _ in range(2))
    for label, tensor in first.items():
        assert tensor.isfinite().all(), f"{label} has no initial value"
        assert tensor.equal(second[label]), f"{label} is another each time"


@kept_settings()
def parameters_are_trained(overrides: Sequence[str], folder: Path) -> None:
    """Every parameter has a gradient."""
    model = _model(overrides).train()
    torch.manual_seed(1)
    log_probs = _logits(model).log_softmax(dim=2)
    torch.autograd.backward([part[:, 3].sum() for part in _real(log_probs)])
    for label, parameter in model.named_parameters():
        assert parameter.grad is not None, f"{label} has no gradient"
        assert parameter.grad.isfinite().all(), f"{label} has a gradient that is not finite"
        assert parameter.grad.any(), f"{label} has a gradient of zero"


def grown_model_is_whole(overrides: Sequence[str], folder: Path) -> None:
    """A grown model has all that it had: as deep as before it is the same, else its copies are."""
    deeper = [*overrides, "model.encoder.depth=6", "model.decoder.depth=4"]
    shallow, model, same = _model(overrides), _initialized(deeper), _initialized(overrides)
    old, new = _recipe(overrides), _recipe(deeper)
    before = {label: parameter.clone() for label, parameter in model.named_parameters()}
    maps = layer_maps(new.training.growth.strategy, old.model, new.model)
    carry_over(shallow, model, **maps)
    for stack, sources in maps.items():
        assert sources[0] == 0, f"layer 1 of the {stack} is not the old one"
        theirs, ours = (list(getattr(each, stack)) for each in (shallow, model))
        for layer, source in ((ours[n], theirs[k]) for n, k in enumerate(sources) if k is not None):
            pairs = zip(layer.parameters(), source.parameters(), strict=True)
            assert all(copy.equal(value) for copy, value in pairs), f"the {stack} has other layers"
    for label, parameter in model.named_parameters():
        assert parameter.isfinite().all(), f"{label} has numbers that are not finite"
    for part in ("encoder.combination", "decoder.combination", "bridge"):
        own = [f"{part}.{label}" for label, _ in model.get_submodule(part).named_parameters()]
        fresh = [model.get_parameter(label).equal(before[label]) for label in own]
        assert not own or not all(fresh), f"{part} has inherited nothing"
    _check_steps(model.eval())
    carry_over(shallow, same, encoder=[0, 1, 2], decoder=[0, 1])
    assert _logits(same.eval()).equal(_logits(shallow)), (
        "a model as deep as before does not inherit all"
    )


def bf16_is_close(overrides: Sequence[str], folder: Path) -> None:
    """Logits in bf16 are within a tenth of those in fp32, and gradients are finite."""
    model = _model(overrides).float()
    full = _logits(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = _logits(model)
    torch.autograd.backward(mixed.float().sum())
    for low, exact in zip(_real(mixed.float()), _real(full), strict=True):
        assert (low - exact).norm() < 0.1 * exact.norm(), "bf16 is far from fp32"
    for label, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), label


def training_resumes_exactly(overrides: Sequence[str], folder: Path) -> None:
    """Six updates equal three and three; the mean of checkpoints translates and is described."""
    recipe, data = _recipe(overrides), folder / "data"
    small_data(recipe, folder)
    for run, lengths in (("whole", (6,)), ("resumed", (3, 6))):
        for updates in lengths:
            part = _recipe([*overrides, f"training.max_updates={updates}"])
            train(TrainingJob(part, data, folder / run, "cpu"), quiet=True)
    names = ("whole/checkpoint_3", "whole/checkpoint_6", "resumed/checkpoint_6")
    paths = [folder / name for name in names]
    before, whole, resumed = (
        checkpoint.weights(checkpoint.load_model(path).model) for path in paths
    )
    for label, tensor in whole.items():
        assert tensor.equal(resumed[label]), f"{label} differs after resuming"
    assert not all(whole[label].equal(before[label]) for label in whole), "training changes nothing"
    averaging.average(paths[:2], folder / "mean")
    translator = Translator.load([folder / "mean"], DecodingOptions(device="cpu", beam=2))
    assert len([*translator.translate(["Turn on the light.", "Save"])]) == 2
    assert not inspect(folder / "mean").problems


CHECKS: tuple[Check, ...] = (
    stepwise_equals_parallel,
    batched_equals_alone,
    padding_is_not_read,
    future_is_not_read,
    parameters_are_initialized,
    parameters_are_trained,
    grown_model_is_whole,
    bf16_is_close,
    training_resumes_exactly,
)


def _recipe(overrides: Sequence[str]) -> Recipe:
    return load_recipe("deep-small", [*TINY, *overrides])


def _initialized(overrides: Sequence[str]) -> Transformer:
    """The model with its initial values; a parameter without one is not finite."""
    section = _recipe(overrides).model
    model = build(section, source_types=TYPES, target_types=TYPES)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(torch.nan)
    initialize(model, section, seed=1, sample=Sample(SOURCE, TARGET))
    return model.double()


def _model(overrides: Sequence[str]) -> Transformer:
    """The model in float64 and without dropout, each parameter moved from its initial value."""
    model = _initialized(overrides)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.3 * noise)
    return model.eval()


def _logits(model: Transformer, source: Tensor = SOURCE, target: Tensor = TARGET) -> Tensor:
    return model.output(model(source, target))


def _real(x: Tensor) -> Iterator[Tensor]:
    """Each sentence's real target positions."""
    for row, (_, length) in zip(x, LENGTHS, strict=True):
        yield row[:length]


def small_data(recipe: Recipe, folder: Path) -> None:
    """Write `data` in a folder: a data directory of a few hundred sentences of the demo."""
    with as_file(files("nmtdeep") / "demo" / "corpus") as corpus:
        for language in ("en", "de"):
            with gzip.open(corpus / f"train.{language}.gz", "rt", encoding="utf-8") as lines:
                text = [*islice(lines, 330)]
            for split, part in (("train", text[:300]), ("valid", text[300:])):
                (folder / f"{split}.{language}").write_text("".join(part), encoding="utf-8")
    texts = CorpusFiles(folder / "train", folder / "valid")
    Preprocessing(recipe, texts, out=folder / "data").run()
