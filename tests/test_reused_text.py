"""A corpus preprocessed with a text pipeline that exists: the same ids, and how well it fits."""

import io
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from rich.console import Console

from nmtdeep.config.recipe import Recipe
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.errors import UserError
from nmtdeep.preprocessing.inputs import CorpusFiles
from nmtdeep.preprocessing.preprocess import Preprocessing
from nmtdeep.preprocessing.reuse import ReusedText
from nmtdeep.preprocessing.summary import PreprocessingReport
from nmtdeep.text.vocabulary import UNK

# Letters that the tiny run has never seen, a pair that cleaning drops, and ordinary words.
PAIRS = [
    ("Connect to the server", "Mit dem Server verbinden"),
    ("Ω is omega, ж is not", "Ω ist Omega"),
    ("word " * 300, "Wort " * 300),
]
OTHER = {"text": {"lowercase": True, "bpe": {"type": "joint", "merges": 5}}}


@pytest.fixture
def corpus(tmp_path):
    for split, pairs in (("train", PAIRS), ("valid", PAIRS[:1])):
        for place, language in enumerate(("en", "de")):
            text = "".join(f"{pair[place]}\n" for pair in pairs)
            (tmp_path / f"{split}.{language}").write_text(text)
    return CorpusFiles(tmp_path / "train", tmp_path / "valid")


def reused(path: Path, corpus: CorpusFiles) -> tuple[DataDirectory, PreprocessingReport]:
    """The corpus with the text of `path`, by a recipe with another text, and its report."""
    text = ReusedText.of(path)
    recipe, changes = text.adopt(Recipe.model_validate(OTHER))
    assert {"text.lowercase: true -> false", "text.bpe.merges: 5 -> 60"} <= set(changes)
    out = corpus.train.with_name(f"of-{path.name}")
    report = Preprocessing(recipe, corpus, out=out, pipeline=text.pipeline).run()
    return DataDirectory.open(out), report


def test_ids_are_those_of_the_pipeline(tiny_run, corpus):
    for path in (tiny_run.data.path, tiny_run.path, tiny_run.older):
        data, report = reused(path, corpus)
        assert report.fingerprint == tiny_run.pipeline.fingerprint()
        for number, pair in enumerate(PAIRS[:2]):
            sides = (data.corpus("train").source, data.corpus("train").target)
            pipelines = (tiny_run.pipeline.source, tiny_run.pipeline.target)
            for side, pipeline, line in zip(sides, pipelines, pair, strict=True):
                assert list(side[number]) == pipeline.encode(line)


def test_a_sentencepiece_model_of_another_program_is_used(corpus, tmp_path):
    lines = [line for pair in PAIRS for line in pair]
    prefix = tmp_path / "theirs"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines * 3),
        model_prefix=str(prefix),
        model_type="bpe",
        vocab_size=60,
        pad_id=0,
        unk_id=3,
        minloglevel=2,
    )
    theirs = sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model")
    found = ReusedText.of(tmp_path / "theirs.model")
    sampling = {"type": "sentencepiece", "sampling": {"alpha": 0.1}}
    given = {"tokenizer": sampling, "tags": {"train": "<new>"}}
    recipe, changes = found.adopt(Recipe.model_validate({"text": given}))
    assert changes == [
        "text.tokenizer.model: unigram -> bpe",
        "text.tokenizer.size: 16000 -> 60",
        "text.tokenizer.byte_fallback: true -> false",
    ]
    assert recipe.text.tokenizer.sampling.alpha == 0.1
    out = tmp_path / "data"
    report = Preprocessing(recipe, corpus, out=out, pipeline=found.pipeline).run()
    data = DataDirectory.open(tmp_path / "data")
    vocabulary = data.pipeline.source.vocabulary
    assert vocabulary is data.pipeline.target.vocabulary
    for number, (source, target) in enumerate(PAIRS[:2]):
        for side, line in zip(("source", "target"), (source, target), strict=True):
            ids = getattr(data.corpus("train"), side)[number].tolist()
            tag = ["<new>"] * (side == "source")
            pieces = [theirs.id_to_piece(id) for id in theirs.encode(line)]
            assert vocabulary.words(ids) == [*tag, *pieces]
    cells, text = rows(found, report)
    assert list(cells) == ["train", "valid"] and "no report" not in text


def rows(reused: ReusedText, report: PreprocessingReport) -> tuple[dict[str, list[str]], str]:
    console = Console(width=200, file=io.StringIO())
    console.print(reused.compared(report))
    text = console.file.getvalue()
    cells = [line.replace(" %", "").split() for line in text.splitlines() if " % " in line]
    return {" ".join(line[:-4]): line[-4:] for line in cells}, " ".join(text.split())


def by_hand(pipeline: Any, pairs: list[tuple[str, str]]) -> list[str]:
    """Unknown share and subwords per word of both sides, from the pairs themselves."""
    cells = []
    for place, side in enumerate((pipeline.source, pipeline.target)):
        subwords = [piece for pair in pairs for piece in side.split(pair[place])]
        words = sum(not piece.endswith("@@") for piece in subwords)
        unknown = side.vocabulary.ids(subwords).count(UNK)
        cells += [f"{100 * unknown / len(subwords):.3f}", f"{len(subwords) / words:.2f}"]
    return cells


def test_the_report_compares_both_corpora(tiny_run, corpus):
    path = tiny_run.data.path
    report = reused(path, corpus)[1]
    found, text = rows(ReusedText.of(path), report)
    assert found["train"] == by_hand(tiny_run.pipeline, PAIRS[:2])  # the third is dropped
    assert float(found["train"][0]) > 0
    lines = [(path.parent / f"train.{side}").read_text().splitlines() for side in ("en", "de")]
    old = by_hand(tiny_run.pipeline, list(zip(*lines, strict=True)))
    assert found[f"train of {path}"] == old
    assert "has no report" not in text


def test_what_has_no_text_is_refused(tmp_path):
    (tmp_path / "some.model").write_text("no model")
    for name in ("nowhere", "none.model", "some.model"):
        with pytest.raises(UserError, match=name):
            ReusedText.of(tmp_path / name).adopt(Recipe())
