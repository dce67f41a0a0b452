"""Everything that the first half hour on a GPU needs, in a folder that travels with the checkout:
wheels, binarized data, and a fixed model with what it computes on a CPU.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from run import find_corpus

from nmtdeep.averaging import average
from nmtdeep.checkpoint import LAST, load
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.config.load import load_recipe
from nmtdeep.data.batching import Share, collate
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.decoding.translator import Translator
from nmtdeep.preprocessing.preprocess import preprocess
from nmtdeep.training.loop import train
from nmtdeep.training.step import Step

RECIPE = "multi30k-en-de"
ROOT = Path(__file__).parents[2]
DATA, SYNTHETIC, MODEL, ANSWERS = "data", "synthetic", "model", "answers.json"
LARGEST = 64 * 2**20
LINES = 200
# What nmtdeep imports and images with torch often lack; versions are those of the lock.
WHEELS = "annotated-types mock pydantic pydantic-core ruamel-yaml sacremoses subword-nmt"
# Largest relative difference in fp32; largest share of translations that differ.
LIMITS = {"loss": 1e-5, "gradient norm": 1e-4, "greedy": 0.01, "beam": 0.01}


def prepare(kit: Path, folder: Path, pretend: bool) -> None:
    """Fill `kit` from the raw text in `folder`; without wheels if it is only pretended."""
    kit.mkdir(parents=True)
    if not pretend:
        download(kit / "wheels")
    texts = zip(("train", "valid", "test"), find_corpus(folder, "en"), strict=True)
    prefixes: dict[str, Any] = dict(texts)
    prefixes["tests"] = [prefixes.pop("test")]
    recipe = load_recipe(RECIPE, ["text.bpe.merges=100"] if pretend else [])
    preprocess(recipe, **prefixes, out=kit / DATA)
    with TemporaryDirectory() as place:
        words = write_synthetic(Path(place), *((200, 50) if pretend else (40_000, 32_000)))
        as_is = ["text.input=tokenized", "text.normalize=false", "text.bpe=none"]
        preprocess(load_recipe(RECIPE, as_is), train=words, valid=words, out=kit / SYNTHETIC)
        train_briefly(kit, Path(place) / "run", 2 if pretend else 150)
    answers = computed(kit, torch.device("cpu"))
    (kit / ANSWERS).write_text(json.dumps(answers), encoding="utf-8")
    size = sum(path.stat().st_size for path in kit.rglob("*") if path.is_file())
    print(f"{kit}: {size / 2**20:.1f} MiB")
    if size > LARGEST:
        sys.exit(f"more than {LARGEST / 2**20:.0f} MiB")


def download(out: Path) -> None:
    """Wheels for Python 3.12 on Linux (x86-64), by pip."""
    lock = (ROOT / "requirements" / "users.txt").read_text(encoding="utf-8")
    versions = dict(re.findall(r"^([\w.-]+)==([^ \\]+)", lock, re.M))
    words = ["download", "--no-deps", "--only-binary=:all:", "--python-version=3.12"]
    words += ["--platform=manylinux2014_x86_64", "--dest", str(out)]
    words += [f"{name}=={versions[name]}" for name in f"{WHEELS} typing-inspection".split()]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True)


def write_synthetic(place: Path, pairs: int, types: int) -> Path:
    """Pairs of similar, log-normal lengths of mean 27, of words whose frequencies fall as 1/rank.

    Each word occurs at least once. Returns the prefix of the files.
    """
    random = np.random.default_rng(1)
    longer = random.lognormal(np.log(27) - 0.125, 0.5, pairs)
    chances = 1 / np.arange(1, types + 1)
    for language in ("en", "de"):
        lengths = np.clip(longer * random.normal(1, 0.1, pairs), 1, 200).astype(int)
        words = random.choice(types, lengths.sum(), p=chances / chances.sum())
        words[random.permutation(len(words))[:types]] = np.arange(types)
        sentences = np.split(words, np.cumsum(lengths)[:-1])
        text = "".join(" ".join(f"w{word}" for word in each) + "\n" for each in sentences)
        (place / f"words.{language}").write_text(text, encoding="utf-8")
    return place / "words"


def train_briefly(kit: Path, run: Path, updates: int) -> None:
    """Train the fixed model without dropout, and keep its weights."""
    recipe = load_recipe(
        str(kit / DATA / "recipe.yaml"),
        [
            "model.encoder={depth: 6, residual: pre_norm, combination: dlcl}",
            "model.dropout={embedding: 0, residual: 0}",
            "training.batches={tokens_per_update: 2048, group_tokens: 2048}",
            "training.schedule={type: linear, lr: 2e-3, warmup_updates: 30}",
            f"training.validation={{every: {updates}, bleu: false, best_by: loss}}",
            f"training.max_updates={updates}",
            "training.precision=fp32",
        ],
    )
    train(recipe, data=kit / DATA, out=run, device="cpu")
    average([run / LAST], kit / MODEL)


def computed(kit: Path, device: torch.device) -> dict[str, Any]:
    """What the fixed model computes on `device` in fp32, by the names of `LIMITS`."""
    data, loaded = DataDirectory.open(kit / DATA), load(kit / MODEL)
    step, corpus = Step(loaded.model, loaded.recipe.training, device=device), data.corpus("valid")
    groups = np.array_split(np.arange(min(LINES, len(corpus))), 4)
    sums = step.accumulate(Share.whole([collate(corpus, each).to(device) for each in groups]), 1)
    norm = torch.nn.utils.get_total_norm([value.grad for value in step.model.parameters()])
    answers: dict[str, Any] = {"loss": float(sums[0]), "gradient norm": float(norm)}
    for name, beam in (("greedy", 1), ("beam", 4)):
        limits = {"max_length_factor": 1.5, "max_length_constant": 5}
        options = DecodingOptions(beam=beam, device=str(device), precision="fp32", **limits)
        translator = Translator.load([kit / MODEL], options)
        answers[name] = [each.text for each in translator.translate(data.sources("valid")[:LINES])]
    return answers


def differences(given: dict[str, Any], expected: dict[str, Any]) -> dict[str, float]:
    """How far two answers of `computed` are apart; AssertionError if beyond `LIMITS`."""
    apart = {}
    for what, limit in LIMITS.items():
        one, other = np.array(given[what]), np.array(expected[what])
        off = abs(one / other - 1) if isinstance(given[what], float) else one != other
        apart[f"off in {what}"] = float(off.mean())
        assert off.mean() <= limit, apart
    return apart
