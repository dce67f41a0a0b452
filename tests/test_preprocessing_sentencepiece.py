"""From raw text of any language to a data directory by SentencePiece."""

from pathlib import Path

import pytest
import sentencepiece

from nmtdeep.config.recipe import Recipe
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.inspection import inspect
from nmtdeep.preprocessing.inputs import CorpusFiles
from nmtdeep.preprocessing.preprocess import Preprocessing
from nmtdeep.text.vocabulary import UNK

# No spaces between words, combining marks, no-break and ideographic spaces; two tabs at the end.
JAPANESE = [
    "吾輩は猫である。",
    "名前はまだ無い。",
    "どこで生れたか頓と見当がつかぬ。",
    "　全角　空白\t",
]
KHMER = ["ខ្ញុំស្រឡាញ់ភាសាខ្មែរ។", "សូមអរគុណ", "តើអ្នកសុខសប្បាយទេ?", "one\u00a0two  three\t"]


def run(folder: Path, out: str = "data", *, source="ja", target="km", **settings):
    tokenizer = {"type": "sentencepiece", "size": 340, **settings.pop("tokenizer", {})}
    workers = settings.pop("workers", 1)
    text = {"source": source, "target": target, "normalize": False, "tokenizer": tokenizer}
    recipe = Recipe.model_validate({"text": text | settings, "model": {"embeddings": NONE}})
    texts = CorpusFiles(folder / "train", folder / "dev")
    job = Preprocessing(recipe, texts, out=folder / out)
    assert len(list(job.plan())) > 6
    return job.run(workers=workers)


NONE = {"sharing": "none"}


@pytest.fixture
def folder(tmp_path):
    for name, times in (("train", 3), ("dev", 1)):
        for language, lines in (("ja", JAPANESE), ("km", KHMER)):
            text = "".join(f"{line}\n" for line in lines * times)
            (tmp_path / f"{name}.{language}").write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("sharing", ["shared", "separate"])
def test_ids_on_disk_spell_the_lines(folder, sharing):
    report = run(folder, vocabulary={"sharing": sharing})
    data = DataDirectory.open(folder / "data")
    assert data.references("valid") == [line.replace("\t", " ") for line in KHMER]
    for side, corpus, lines in (
        (data.pipeline.source, data.corpus("valid").source, JAPANESE),
        (data.pipeline.target, data.corpus("valid").target, KHMER),
    ):
        for number, line in enumerate(lines):
            assert corpus[number].tolist() == side.encode(line)
            pieces = side.vocabulary.words(corpus[number].tolist())
            assert side.join(pieces) == line.replace("\t", " ")
    counts = sum(data.pipeline.source.vocabulary.counts), sum(report.splits["train"].tokens)
    assert counts[0] == (counts[1] if sharing == "shared" else report.splits["train"].tokens[0])
    assert report.splits["train"].words == (3 * 4, 3 * 5)  # spaces and tabs separate
    assert report.splits["train"].kept_words == report.splits["train"].words
    assert report.splits["valid"].unknown == (0, 0)
    rows = dict(inspect(folder / "data").rows)
    assert rows["text"] == "ja to km, raw text, SentencePiece (unigram)"


def test_a_model_learned_on_both_sides_is_the_librarys(folder):
    """Trained by the library on the same lines with its own defaults and ours."""
    run(folder, tokenizer={"model": "bpe", "byte_fallback": False, "character_coverage": 1.0})
    prefix = folder / "theirs"
    lines = [line.replace("\t", " ") for line in (*JAPANESE * 3, *KHMER * 3)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_prefix=str(prefix),
        model_type="bpe",
        vocab_size=340,
        character_coverage=1.0,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    theirs = sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model")
    side = DataDirectory.open(folder / "data").pipeline.target
    assert [side.split(line) for line in KHMER[:3]] == theirs.encode(KHMER[:3], out_type=str)


def test_files_are_named_by_whole_language_tags(folder):
    for name in ("train", "dev"):
        (folder / f"{name}.ja").rename(folder / f"{name}.pt-BR")
        (folder / f"{name}.km").rename(folder / f"{name}.zh-Hant")
    run(folder, source="pt-BR", target="zh-Hant", vocabulary={"sharing": "separate"})
    data = DataDirectory.open(folder / "data")
    assert data.languages == ("pt-BR", "zh-Hant")
    names = {path.name for path in (folder / "data" / "text").iterdir()}
    assert {"vocabulary.pt-BR.tsv", "sentencepiece.zh-Hant.model"} <= names
    assert UNK not in data.pipeline.source.encode("Olá")
