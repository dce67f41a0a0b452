"""The commands of a page, one after the other, on a small corpus under the page's own names."""

import shutil
from pathlib import Path

import pytest
from pages import ROOT, commands_in_blocks
from sentencepiece import SentencePieceTrainer
from tools.convert.marian_like import MarianLike

from commands.running import Commands

pytestmark = pytest.mark.slow

SPLITS = {
    "train": ("multi30k/train", "corpus/train", "three"),
    "valid": ("multi30k/val", "corpus/dev"),
    "test": ("multi30k/test_2016_flickr", "corpus/test", "input"),
}
PLAIN = {"test.en": ("src.txt",), "test.de": ("hyp.txt", "hyp2.txt", "ref.txt", "ref2.txt")}
# Inserted before the page's own overrides, so that these still apply.
SMALL = (
    "model.width=16",
    "model.encoder.depth=2",
    "model.decoder.depth=1",
    "training.batches={tokens_per_update: 400, group_tokens: 200, max_tokens: 200}",
    "training.checkpoints={every: 1, keep_last: 5, keep_best: 3, average_last: 2}",
    "training.validation.every=2",
    "training.log_every=2",
    "decoding.max_length_factor=0.5",
    "decoding.max_length_constant=4",
)
# Replace the page's own values.
SHORT = {"--max-updates": "6", "--max-tokens": "400", "--tokens-per-update": "400"}
MEASURED = {"--tokens": "100", "--device": "cpu"}
FEW = {"initialization": MEASURED, "gradients": MEASURED | {"--depths": "1,2"}}
TRAINED = ("run", "dlcl")
PREPROCESS = "preprocess multi30k-en-de --train multi30k/train --valid multi30k/val --out data"
TRAIN = "train multi30k-en-de --data data --out run"
# Pages, with the command that came before.
BEFORE = {
    "README.md": "",
    "docs/cluster.md": PREPROCESS,
    "docs/converting.md": "",
    "docs/exporting.md": TRAIN,
    "docs/fine-tuning.md": TRAIN,
    "docs/looking-inside.md": TRAIN,
    "docs/quick-start.md": "",
    "docs/results.md": "",
    "docs/text.md": "",
    "docs/training.md": PREPROCESS,
    "docs/translating.md": TRAIN,
    "docs/scoring.md": TRAIN,
    "docs/students.md": TRAIN,
}


def fill(folder: Path, tmp_path: Path) -> None:
    """Write the small corpus under every name that a page uses."""
    for split, names in SPLITS.items():
        for language in ("en", "de"):
            for name in names:
                target = tmp_path / f"{name}.{language}"
                target.parent.mkdir(exist_ok=True)
                shutil.copy(folder / f"{split}.{language}", target)
    for source, names in PLAIN.items():
        for name in names:
            shutil.copy(folder / source, tmp_path / name)
    learned = {"model_prefix": str(tmp_path / "spm"), "vocab_size": 300, "minloglevel": 2}
    files = [str(tmp_path / f"corpus/test.{language}") for language in ("en", "de")]
    SentencePieceTrainer.train(input=files, hard_vocab_limit=False, **learned)
    tokenized = tmp_path / "multi30k/tok/test_2016_flickr.lc.norm.tok.de"
    tokenized.parent.mkdir()
    shutil.copy(folder / "test.de", tokenized)
    MarianLike().write(tmp_path / "opus-mt-en-de")


@pytest.fixture(scope="module")
def prepared(folder, tmp_path_factory):
    """Folders with the corpus, and with what some commands leave there."""
    made = {"": tmp_path_factory.mktemp("corpus")}
    fill(folder, made[""])
    for before, line in (("", PREPROCESS), (PREPROCESS, TRAIN)):
        place = tmp_path_factory.mktemp("prepared") / "copy"
        made[line] = Path(shutil.copytree(made[before], place, symlinks=True))
        run(Commands(place, tmp_path_factory.mktemp("logs")), tuple(line.split()))
    return made


def run(nmtdeep: Commands, words: tuple[str, ...]) -> None:
    done = nmtdeep(*small(words), stdin=b"A man plays the guitar.\n")
    assert done.code == 0, f"{' '.join(words)}\n{done.err}"


def small(words: tuple[str, ...]) -> list[str]:
    """A command that does the same in seconds."""
    if words[0] == "analyze" and words[1] in FEW and words[2] not in TRAINED:
        return [*words[:3], *SMALL, *changed(words[3:], FEW[words[1]])]
    if words[0] == "analyze" and words[1] in FEW:
        return changed(words, MEASURED)
    if words[0] != "train":
        return list(words)
    if "--processes" in words:
        words = tuple(changed(words, {"--processes": "1"}))
    if "--minutes" in words:  # excludes --max-updates
        words = tuple(changed(words, {"--minutes": "0.02"}))
        return ["train", words[1], *SMALL, *words[2:], "--max-tokens", "200", "--device", "cpu"]
    short = [] if "--dry-run" in words else ["--device", "cpu"]
    if words[1].startswith("--"):  # a run that is small already goes on
        return [*changed(words, SHORT | {"--max-updates": "8"}), *short]
    return ["train", words[1], *SMALL, *changed(words[2:], SHORT), *short]


def changed(words: tuple[str, ...], values: dict[str, str]) -> list[str]:
    """A command's words with these values of options, whatever it had."""
    places = {place for place, word in enumerate(words) if word in values}
    kept = [word for place, word in enumerate(words) if not {place, place - 1} & places]
    return [*kept, *(word for pair in values.items() for word in pair)]


def also_known_as(place: Path, words: tuple[str, ...]) -> None:
    """Make the runs and checkpoints that a command names, from those that are there."""
    names = {"run1": "run", "run2": "run", "run3": "run"}
    names |= {"run/checkpoint_3000": "run/checkpoint_5", "run/checkpoint_4000": "run/checkpoint_6"}
    for name in names.keys() & set(words):
        shutil.copytree(place / names[name], place / name, symlinks=True)


@pytest.mark.parametrize("page", BEFORE)
def test_the_commands_of_a_page_run(prepared, page, tmp_path, tmp_path_factory):
    place = Path(shutil.copytree(prepared[BEFORE[page]], tmp_path / "page", symlinks=True))
    nmtdeep = Commands(place, tmp_path_factory.mktemp("logs"))
    shown = [command.words for command in commands_in_blocks(ROOT / page)]
    assert shown
    for words in shown:
        if "nmtdeep-demo/run" in words or words[0] == "fetch":  # what `make demo` leaves; network
            continue
        if "learning-rate" in words:  # 200 updates: test_learning_rate.py
            continue
        if page == "docs/exporting.md" and "student" in words:  # docs/students.md makes one
            continue
        also_known_as(place, words)
        run(nmtdeep, words)
