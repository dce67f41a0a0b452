"""Whole corpora from a web server to `nmtdeep preprocess`, by the real commands."""

import gzip
import shlex
import subprocess
from pathlib import Path

import pytest
from sacrebleu.dataset import DATASETS
from typer.testing import CliRunner, Result

from nmtdeep.cli.main import app
from nmtdeep.errors import DataError, UserError
from nmtdeep.tools.fetch.catalog import SourceFile, load_catalog, split_member
from nmtdeep.tools.fetch.corpus import Fetch

from .archives import sgm, small, tar, xml
from .conftest import Server

CATALOG = load_catalog()


def served(server: Server, files: dict[str, bytes], *, md5: bool = False) -> dict[str, SourceFile]:
    """The shipped sources, at a server's addresses; checksums are those of other bytes."""
    server.files |= files
    return {
        name: source.model_copy(
            update={"urls": (server.url(source.file),), "md5": source.md5 if md5 else None}
        )
        for name, source in CATALOG.sources.items()
    }


def job(server: Server, name: str, out: Path, files: dict[str, bytes], **more: object) -> Fetch:
    sources = served(server, files)
    return Fetch(name, CATALOG.datasets[name], sources, out, **more)  # type: ignore[arg-type]


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def small_files(name: str) -> dict[str, bytes]:
    return small(CATALOG, CATALOG.datasets[name])


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words), standalone_mode=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(CATALOG.datasets))
def test_the_commands_at_the_end_make_data_directories(server, tmp_path, name):
    if name == "wmt18-zh-en":
        pytest.importorskip("jieba")
    dataset, out = CATALOG.datasets[name], tmp_path / "a folder"
    fetch = job(server, name, out, small_files(name))
    fetch.run()
    assert not (tmp_path / "outside").exists()
    assert len(fetch.commands()) == len(dataset.commands)
    for line in fetch.commands():
        done = run(*shlex.split(line)[1:], "--workers", "1")
        assert done.exit_code == 0, done.output
    written = {path.name for path in out.iterdir() if path.is_file()}
    outputs = [*dataset.outputs, *["valid"] * (name == "iwslt14-de-en")]
    assert written == {f"{output}.{code}" for output in outputs for code in dataset.languages}
    assert not list(out.glob(".*"))


def test_the_command_takes_archives_from_a_folder_and_prints_its_counts(tmp_path):
    for file, content in small_files("multi30k-en-de").items():
        (tmp_path / file).write_bytes(content)
    out = tmp_path / "out"
    done = run("fetch", "multi30k-en-de", "-o", str(out), "--from", str(tmp_path))
    assert done.exit_code == 0, done.output
    assert "train: 60 pairs\n  published: 29,000:" in done.stdout
    assert f"next:\n  nmtdeep preprocess multi30k-en-de --train {out}/train" in done.stdout


def test_test_sets_are_those_of_sacrebleu():
    tests = ["wmt12", "wmt13", "wmt14", "wmt14/full", "wmt15", "wmt18"]
    theirs = {name.replace("/", "-"): DATASETS[name] for name in tests}
    for name, test in theirs.items():
        source = CATALOG.sources[name]
        assert ([*source.urls], [source.md5]) == (test.data, test.md5)
    known = {
        (name, member)
        for name, test in theirs.items()
        for members in test.langpairs.values()
        for member in members
    }
    files = [split_member(file) for dataset in CATALOG.datasets.values() for file in dataset.files]
    assert {(source, member) for source, member in files if source in theirs} <= known


def test_training_corpora_are_in_the_papers_order(server, tmp_path):
    europarl = {"training/europarl-v7.de-en.en": b"e1\n", "training/europarl-v7.de-en.de": b"E1\n"}
    crawl = {"commoncrawl.de-en.en": b"c\x01\xc2\xad1\n", "commoncrawl.de-en.de": b"C1\n"}
    news = {
        f"training/news-commentary-v9.de-en.{code}": text
        for code, text in (("en", b"n1\nn2\n"), ("de", b"N1\n\xff\n"))
    }
    files = small_files("wmt14-en-de") | {
        "training-parallel-europarl-v7.tgz": tar(europarl),
        "training-parallel-commoncrawl.tgz": tar(crawl),
        "training-parallel-nc-v9.tgz": tar(news),
    }
    counts = job(server, "wmt14-en-de", tmp_path, files).run()
    assert lines(tmp_path / "train.en") == ["e1", "c  1", "n1"]
    assert lines(tmp_path / "train.de") == ["E1", "C1", "N1"]
    assert (counts[0].pairs, counts[0].dropped) == (3, {"not valid UTF-8": 1})


def test_iwslt_is_cleaned_held_out_and_joined_as_fairseq_does(server, tmp_path):
    good = [f"Satz {i} ." for i in range(100)]
    train = ["<url>u</url>", *good[:50], "<title>a b c d e</title>", *good[50:], "x " * 176]
    tagged = ["<url>u</url>", *good[:50], "<title>a</title>", *good[50:], "x " * 176]
    members = {
        "de-en/train.tags.de-en.de": "\n".join(train).encode(),
        "de-en/train.tags.de-en.en": "\n".join(tagged).encode(),
    }
    sets = ["TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012"]
    for name in sets:
        for code in ("de", "en"):
            members[f"de-en/IWSLT14.{name}.de-en.{code}.xml"] = xml([f"{code} {name}: it’s"])
    job(server, "iwslt14-de-en", tmp_path, {"iwslt14-de-en.tgz": tar(members)}).run()
    awk = [
        subprocess.run(
            ["awk", f"NR%23 {sign} 0"], input="\n".join(good), capture_output=True, text=True,
            check=True,
        ).stdout.splitlines()
        for sign in ("==", "!=")
    ]  # fmt: skip
    assert lines(tmp_path / "valid.de") == lines(tmp_path / "valid.en") == awk[0]
    assert lines(tmp_path / "train.de") == lines(tmp_path / "train.en") == awk[1]
    assert lines(tmp_path / "test.en") == [f"en {name} : it 's" for name in sets]


def test_prepared_text_is_unescaped_and_raw_test_sets_are_made_like_it(server, tmp_path):
    files = small_files("wmt18-en-fi") | {
        "wmt18-fi-en-corpus.gz": gzip.compress(
            "tämä on &quot; hyvä &quot;\tthis is &quot; good &quot;\nParis\tParis\n".encode()
        ),
        "wmt18-test.tgz": tar(
            {
                "test/newstest2018-enfi-src.en.sgm": sgm(["This is “good-ish” Paris."]),
                "test/newstest2018-enfi-ref.fi.sgm": sgm(["Tämä on hyvä."]),
            }
        ),
    }
    job(server, "wmt18-en-fi", tmp_path, files).run()
    assert lines(tmp_path / "train.en")[0] == 'this is " good "'
    assert lines(tmp_path / "train.fi")[0] == 'tämä on " hyvä "'
    assert lines(tmp_path / "newstest2018.tc.en") == ['this is " good @-@ ish " Paris .']
    assert lines(tmp_path / "newstest2018.tc.fi") == ["tämä on hyvä ."]
    assert lines(tmp_path / "newstest2018.en") == ["This is “good-ish” Paris."]


def test_complete_downloads_are_kept(server, tmp_path):
    files = small_files("multi30k-en-de")
    last = files.pop("multi30k-test_2016_flickr.de.gz")
    with pytest.raises(UserError, match=r"flickr\.de\.gz: HTTP 404"):
        job(server, "multi30k-en-de", tmp_path, files).run()
    assert [path.name for path in tmp_path.iterdir()] == ["downloads"]
    server.requests.clear()
    rest = {"multi30k-test_2016_flickr.de.gz": last}
    counts = job(server, "multi30k-en-de", tmp_path, rest).run()
    assert server.requests == ["multi30k-test_2016_flickr.de.gz"]
    assert job(server, "multi30k-en-de", tmp_path, {}).run() == counts
    assert len(server.requests) == 1


def test_a_published_checksum_that_differs_is_an_error(server, tmp_path):
    sources = served(server, small_files("wmt14-en-de"), md5=True)
    with pytest.raises(DataError, match=r"wmt13-test\.tgz.*: its MD5 is \w+, expected 48ec"):
        Fetch("wmt14-en-de", CATALOG.datasets["wmt14-en-de"], sources, tmp_path).run()
    assert not (tmp_path / "downloads/wmt13-test.tgz").exists()
    assert (tmp_path / "downloads/training-parallel-nc-v9.tgz").exists()
