"""What measure.py needs on a GPU: wheels, data, a fixed model and its results."""

import json
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from nmtdeep.averaging import average
from nmtdeep.checkpoint import LAST, load_model
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.config.load import load_recipe
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.data.index import RECIPE_FILE
from nmtdeep.decoding.translator import Translator
from nmtdeep.preprocessing.inputs import CorpusFiles
from nmtdeep.preprocessing.preprocess import Preprocessing
from nmtdeep.training import loop
from nmtdeep.training.feed import upcoming
from nmtdeep.training.ranks import Ranks
from nmtdeep.training.setup import Setup, TrainingJob
from nmtdeep.training.state import Progress
from nmtdeep.training.step import Step
from nmtdeep.training.validation import translated

ROOT, RECIPE = Path(__file__).parents[2], "multi30k-en-de"
DATA, SYNTHETIC, MODEL, ANSWERS = "data", "synthetic", "model", "answers.json"
# What nmtdeep imports and images with torch often lack; versions are those of the lock.
WHEELS = """annotated-doc annotated-types mock pydantic pydantic-core ruamel-yaml sacremoses
    subword-nmt typer typing-extensions typing-inspection"""
# Largest relative difference in fp32; largest share of translations that differ.
LIMITS = {"loss": 1e-5, "gradient norm": 1e-4, "translations": 0.01}


def prepare(kit: Path, folder: Path, pretend: bool) -> None:
    """Fill `kit` from the raw text in `folder`; without wheels if it is only pretended."""
    kit.mkdir(parents=True)
    if not pretend:
        download(kit / "wheels")
    train, valid = folder / "train", folder / ("val" if [*folder.glob("val.*")] else "dev")
    test = folder / min(folder.glob("test*")).name.split(".")[0]
    recipe = load_recipe(RECIPE, ["text.bpe.merges=100"] if pretend else [])
    Preprocessing(recipe, CorpusFiles(train, valid, [test]), out=kit / DATA).run()
    with TemporaryDirectory() as place:
        pairs, types = (200, 50) if pretend else (40_000, 32_000)
        train = write_synthetic(Path(place) / "train", pairs, types)
        valid = write_synthetic(Path(place) / "valid", 100, types)
        as_is = ["text.input=tokenized", "text.normalize=false", "text.bpe=none"]
        synthetic = load_recipe(RECIPE, as_is)
        Preprocessing(synthetic, CorpusFiles(train, valid), out=kit / SYNTHETIC).run()
        train_briefly(kit, Path(place) / "run", 2 if pretend else 150)
    answers = computed(kit, torch.device("cpu"))
    (kit / ANSWERS).write_text(json.dumps(answers), encoding="utf-8")
    size = sum(path.stat().st_size for path in kit.rglob("*") if path.is_file())
    print(f"{kit}: {size / 2**20:.1f} MiB")
    assert size <= 64 * 2**20, "more than 64 MiB"


def download(out: Path) -> None:
    """Wheels for Python 3.12 on Linux (x86-64), by pip."""
    lock = (ROOT / "requirements" / "users.txt").read_text(encoding="utf-8")
    versions = dict(re.findall(r"^([\w.-]+)==([^ \\]+)", lock, re.M))
    words = ["download", "--no-deps", "--only-binary=:all:", "--python-version=3.12"]
    words += ["--platform=manylinux2014_x86_64", "--dest", str(out)]
    words += [f"{name}=={versions[name]}" for name in WHEELS.split()]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True)


def write_synthetic(prefix: Path, pairs: int, types: int) -> Path:
    """Pairs of random words, of similar, log-normal lengths of mean 27; returns `prefix`."""
    random = np.random.default_rng(1)
    longer = random.lognormal(np.log(27) - 0.125, 0.5, pairs)
    for language in ("en", "de"):
        lengths = np.clip(longer * random.normal(1, 0.1, pairs), 1, 200).astype(int)
        words = (random.integers(types, size=length) for length in lengths)
        text = "".join(" ".join(f"w{word}" for word in each) + "\n" for each in words)
        prefix.with_name(f"{prefix.name}.{language}").write_text(text, encoding="utf-8")
    return prefix


def train_briefly(kit: Path, run: Path, updates: int) -> None:
    """Train the fixed model, which has no dropout, and keep its weights."""
    model = "encoder={depth: 6, residual: pre_norm, combination: dlcl}"
    overrides = [f"model.{model}", "model.dropout={embedding: 0, residual: 0}"]
    overrides += ["training.batches={tokens_per_update: 2048, group_tokens: 2048}"]
    overrides += ["training.schedule={type: linear, lr: 2e-3, warmup_updates: 30}"]
    overrides += [f"training.max_updates={updates}", "training.precision=fp32"]
    recipe = load_recipe(str(kit / DATA / RECIPE_FILE), overrides)
    loop.train(TrainingJob(recipe, kit / DATA, run, "cpu"))
    average([run / LAST], kit / MODEL)


def computed(kit: Path, device: torch.device) -> dict[str, Any]:
    """What the fixed model computes on `device` in fp32, by the names of `LIMITS`."""
    data, loaded = DataDirectory.open(kit / DATA), load_model(kit / MODEL)
    step = Step(loaded.model, loaded.recipe.training, device=device)
    with closing(upcoming(Setup(loaded.recipe, data, Ranks(device=device)), Progress())) as feed:
        sums = step.forward_backward(next(feed).batches, 1).sums
    norm = torch.nn.utils.get_total_norm([value.grad for value in step.model.parameters()])
    options = {"device": str(device), "precision": "fp32", "max_length_constant": 20}
    translator = Translator.load([kit / MODEL], DecodingOptions(**options))
    texts = translated(translator, data, "valid", first=200)
    return {"loss": float(sums[0]), "gradient norm": float(norm), "translations": texts}


def differences(given: dict[str, Any], expected: dict[str, Any]) -> dict[str, float]:
    """How far two answers of `computed` are apart; AssertionError if beyond `LIMITS`."""
    apart = {}
    for what, limit in LIMITS.items():
        one, other = np.array(given[what]), np.array(expected[what])
        off = one != other if what == "translations" else abs(one / other - 1)
        apart[f"off in {what}"] = float(off.mean())
        assert off.mean() <= limit, apart
    return apart
