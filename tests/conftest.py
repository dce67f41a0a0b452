"""Fixtures of several folders: tiny models with random weights, and a tiny trained run."""

import gc
import os
import random
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from nmtdeep import checkpoint
from nmtdeep.config import model as config
from nmtdeep.config.recipe import Recipe
from nmtdeep.data.batch import Batch, RankBatches, read_batch
from nmtdeep.data.corpus import DataDirectory, MonolingualCorpus, ParallelCorpus
from nmtdeep.model.build import build, initialize
from nmtdeep.model.transformer import Transformer
from nmtdeep.preprocessing.inputs import CorpusFiles
from nmtdeep.preprocessing.preprocess import Preprocessing
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.training.state import Progress, optimizer_tensors
from nmtdeep.training.step import Step

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # kernels of Triton, which reads it at its import
# Threads only cost at these sizes, and they would let the order of sums depend on the machine.
torch.set_num_threads(1)
# A shell starts background jobs with SIGINT ignored, and processes of the tests would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
with suppress(ModuleNotFoundError):  # tests/gpu runs where Hypothesis may not be installed
    from hypothesis import HealthCheck, settings

    # No test fails because the machine is busy.
    slow = HealthCheck.too_slow
    settings.register_profile("any machine", deadline=None, suppress_health_check=[slow])
    settings.load_profile("any machine")

DEMO = Path(__file__).parents[1] / "nmtdeep" / "demo" / "corpus"
TYPES = 20
LANGUAGES = ("en", "de")
Pairs = Sequence[tuple[str, str]]


def pytest_addoption(parser: pytest.Parser) -> None:
    """An option to find tests that need others before them."""
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run test files in random order")


def pytest_collection_finish() -> None:
    """Exempt modules and tests from the collection of garbage, which trainings call for."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the files by the seed of --shuffle."""
    seed = config.getoption("--shuffle")
    if seed is not None:
        files = sorted({item.path for item in items})
        random.Random(seed).shuffle(files)
        items.sort(key=lambda item: files.index(item.path))


def _tiny_config(
    *,
    encoder: str = "pre_norm",
    decoder: str = "pre_norm",
    sublayers: tuple[object, ...] = ("self_attention", "cross_attention", "feed_forward"),
    sharing: str = "all",
    bias: bool = False,
    dropout: float = 0.0,
    feed_forward: int = 12,
    depth: int = 2,
    combinations: tuple[object, object] = ("residual", "residual"),
    widths: tuple[int | None, int | None] = (None, None),
    embeddings: Mapping[str, object] | None = None,
    **other: object,
) -> config.Model:
    """Width 8, 2 heads, 2 layers; `other` are keys of the recipe's section model.

    `encoder` and `decoder` are residual wrappers, `combinations` what the stacks' layers read,
    `widths` those of the stacks.
    """
    stack = {"depth": depth, "heads": 2, "feed_forward": feed_forward}
    places = ("embedding", "residual", "attention", "activation")
    return config.Model.model_validate(
        {
            "width": 8,
            "encoder": {
                **stack,
                "residual": encoder,
                "combination": combinations[0],
                "width": widths[0],
            },
            "decoder": {
                **stack,
                "residual": decoder,
                "combination": combinations[1],
                "width": widths[1],
                "sublayers": sublayers,
            },
            "embeddings": {"sharing": sharing, "bias": bias, **(embeddings or {})},
            "dropout": dict.fromkeys(places, dropout),
            **other,
        }
    )


def _tiny_model(
    *, seed: int = 0, dtype: torch.dtype = torch.float64, types: int = TYPES, **choices: object
) -> Transformer:
    """A model without dropout noise whose every parameter, biases and norms too, is random.

    Initializers start biases at 0 and norms at 1, which would hide a bias that is never added.
    """
    described = _tiny_config(**choices)  # type: ignore[arg-type]
    target = types if described.embeddings.sharing == "all" else types + 3
    model = build(described, source_types=types, target_types=target).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in model.modules():
            is_norm = isinstance(module, torch.nn.LayerNorm | torch.nn.RMSNorm)
            center = 1.0 if is_norm else 0.0
            for name, parameter in module.named_parameters(recurse=False):
                middle = 1.0 if name == "omega" else center if name == "weight" else 0.0
                parameter.normal_(middle, 0.4, generator=generator)
    return model.eval()


def _corpus(sentences: list[list[int]]) -> MonolingualCorpus:
    lengths = [len(sentence) for sentence in sentences]
    tokens = np.array([id for sentence in sentences for id in sentence], dtype=np.uint16)
    return MonolingualCorpus(tokens, np.concatenate(([0], np.cumsum(lengths))).astype(np.int64))


def _batch(sources: list[list[int]], targets: list[list[int]]) -> Batch:
    pairs = ParallelCorpus(_corpus(sources), _corpus(targets))
    return read_batch(pairs, np.arange(len(sources)))


def _data(folder: Path, recipe: Recipe, train: Pairs, valid: Pairs) -> DataDirectory:
    for split, pairs in (("train", train), ("valid", valid)):
        for language, lines in zip(LANGUAGES, zip(*pairs, strict=True), strict=True):
            text = "".join(f"{line}\n" for line in lines)
            (folder / f"{split}.{language}").write_bytes(text.encode())
    texts = CorpusFiles(folder / "train", folder / "valid")
    Preprocessing(recipe, texts, out=folder / "data").run()
    return DataDirectory.open(folder / "data")


@pytest.fixture(scope="session")
def tiny_config():
    """Describes a tiny model."""
    return _tiny_config


@pytest.fixture(scope="session")
def tiny_model():
    """Builds a tiny model with random weights, float64, in evaluation mode."""
    return _tiny_model


@pytest.fixture(scope="session")
def multi30k():
    """The lines of a file of Multi30k; a test that needs one is skipped where it is missing."""
    folder = Path(__file__).parents[2] / "shared" / "data" / "multi30k-en-de"

    def read(name: str) -> list[str]:
        if not (folder / name).exists():
            pytest.skip("no Multi30k text: the project's shared folder is not beside this checkout")
        return (folder / name).read_text(encoding="utf-8").split("\n")[:-1]

    return read


@pytest.fixture(scope="session")
def make_corpus():
    """A corpus of id lists, each ending in EOS."""
    return _corpus


@pytest.fixture(scope="session")
def make_batch():
    """A `Batch` of id lists, each ending in EOS."""
    return _batch


@pytest.fixture(scope="session")
def make_data():
    """`make_data(folder, recipe, train, valid)` preprocesses pairs of lines into `folder/data`."""
    return _data


@dataclass(frozen=True)
class TinyRun:
    """A run directory with two checkpoints of one short training, and its recipe, data and text."""

    path: Path
    older: Path
    newer: Path
    data: DataDirectory
    recipe: Recipe
    pipeline: TextPipeline
    sources: list[str]


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory):
    """50 sentences of the demo corpus through preprocessing and 20 updates; do not write to it."""
    root = tmp_path_factory.mktemp("tiny")
    sides = ((DEMO / f"dev.{side}").read_text(encoding="utf-8").splitlines() for side in LANGUAGES)
    pairs = list(zip(*sides, strict=True))
    recipe = Recipe.model_validate(
        {
            "text": {"bpe": {"type": "joint", "merges": 60}, "vocabulary": {"multiple": 1}},
            "model": _tiny_config(width=16).model_dump(),
            "decoding": {"beam": 3, "max_length_constant": 4},
        }
    )
    data = _data(root, recipe, pairs[:50], pairs[50:60])
    older, newer = _train_briefly(recipe, data, root / "run")
    sources = [source for source, _ in pairs[50:60]]
    return TinyRun(root / "run", older, newer, data, recipe, data.pipeline, sources)


def _train_briefly(recipe: Recipe, data: DataDirectory, run: Path) -> tuple[Path, Path]:
    types = len(data.pipeline.source.vocabulary)
    model = build(recipe.model, source_types=types, target_types=types)
    initialize(model, recipe.model, seed=1)
    step = Step(model, recipe.training)
    corpus = data.corpus("train")
    batches = [read_batch(corpus, np.arange(first, first + 25)) for first in (0, 25)]
    paths = []
    for update in range(1, 21):
        step.update(RankBatches.single(batches[update % 2 :][:1]), update, 0.02)
        if update in (15, 20):
            paths.append(run / f"checkpoint_{update}")
            checkpoint.save(
                paths[-1],
                tensors=checkpoint.weights(model),
                optimizer=optimizer_tensors(model, step.optimizer),
                state=Progress(update=update, score=-float(update)).to_json(),
                recipe=recipe,
                pipeline=data.pipeline,
            )
    checkpoint.point(run, checkpoint.LAST, paths[1])
    return paths[0], paths[1]
