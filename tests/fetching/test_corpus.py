"""Whole corpora from a web server to `nmtdeep preprocess`, by the real commands."""

from __future__ import annotations

import gzip
import json
import shlex
import subprocess
from pathlib import Path

import pytest
from sacrebleu.dataset import DATASETS
from typer.testing import CliRunner, Result

from fetching.archives import sgm, small, tar, xml
from fetching.server import Server
from nmtdeep.cli.fetch import Corpus
from nmtdeep.cli.main import app
from nmtdeep.errors import DataError, UserError
from nmtdeep.fetching.catalog import Source, Table, load_table
from nmtdeep.fetching.corpus import Fetch
from nmtdeep.fetching.download import Patience

TABLE = load_table()
QUICK = Patience(timeout=2, attempts=2, pause=0.001)
MULTI30K = Path(__file__).resolve().parents[2] / "../shared/data/multi30k-en-de"


def served(server: Server, files: dict[str, bytes], *, md5: bool = False) -> dict[str, Source]:
    """The shipped sources, at a server's addresses; checksums are those of other bytes."""
    server.files |= files
    return {
        name: source.model_copy(
            update={"urls": (server.url(source.file),), "md5": source.md5 if md5 else None}
        )
        for name, source in TABLE.sources.items()
    }


def job(server: Server, name: str, out: Path, files: dict[str, bytes], **more: object) -> Fetch:
    sources = served(server, files)
    return Fetch(name, TABLE.datasets[name], sources, out, patience=QUICK, **more)  # type: ignore[arg-type]


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def small_files(name: str) -> dict[str, bytes]:
    return small(TABLE, TABLE.datasets[name])


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words), standalone_mode=True)


@pytest.mark.parametrize("name", list(Corpus))
def test_the_command_that_is_printed_makes_a_data_directory(
    server: Server, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "wmt18-zh-en":
        pytest.importorskip("jieba")
    table = Table(sources=served(server, small_files(name)), datasets=TABLE.datasets)
    monkeypatch.setattr("nmtdeep.fetching.catalog.load_table", lambda: table)
    out = tmp_path / "a folder"
    result = run("fetch", name, "-o", str(out), "--workers", "1")
    assert result.exit_code == 0, result.output
    assert not (tmp_path.parent / "outside").exists()
    shown = [line.strip() for line in result.stdout.splitlines() if "nmtdeep preprocess" in line]
    assert len(shown) == len(TABLE.datasets[name].commands)
    for line in shown:
        done = run(*shlex.split(line)[1:], "--workers", "1")
        assert done.exit_code == 0, done.output
    made = {path.name for path in out.iterdir() if path.is_file()}
    languages, outputs = TABLE.datasets[name].languages, list(TABLE.datasets[name].outputs)
    outputs += ["valid"] * (name == "iwslt14-de-en")
    assert made == {f"{one}.{code}" for one in outputs for code in languages} | {"fetch.json"}
    assert not list(out.glob(".*"))


def test_the_corpora_and_recipes_of_the_table_are_there() -> None:
    assert {corpus.value for corpus in Corpus} == set(TABLE.datasets)
    for dataset in TABLE.datasets.values():
        for command in dataset.commands:
            held = {one.hold_out.name for one in dataset.outputs.values() if one.hold_out}
            assert {command.train, command.valid, *command.tests} <= set(dataset.outputs) | held


@pytest.mark.parametrize(
    ("name", "theirs"),
    [("wmt12", "wmt12"), ("wmt13", "wmt13"), ("wmt14", "wmt14"), ("wmt14-full", "wmt14/full"),
     ("wmt15", "wmt15"), ("wmt18", "wmt18")],
)  # fmt: skip
def test_addresses_and_checksums_of_test_sets_are_sacrebleus(name: str, theirs: str) -> None:
    source = TABLE.sources[name]
    assert [[*source.urls], [source.md5]] == [DATASETS[theirs].data, DATASETS[theirs].md5]


@pytest.mark.parametrize("name", list(Corpus))
def test_members_of_test_sets_are_sacrebleus(name: str) -> None:
    known = {
        (name if theirs != "wmt14/full" else "wmt14-full", member)
        for theirs in ("wmt12", "wmt13", "wmt14", "wmt14/full", "wmt15", "wmt18")
        for name in [theirs]
        for members in DATASETS[theirs].langpairs.values()
        for member in members
    }
    places = [place.partition(":") for place in TABLE.datasets[name].places]
    wanted = {(source, member) for source, _, member in places if TABLE.sources[source].md5}
    assert wanted <= known


def test_training_corpora_stand_in_the_papers_order(server: Server, tmp_path: Path) -> None:
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
    made = job(server, "wmt14-en-de", tmp_path, files).run()
    assert lines(tmp_path / "train.en") == ["e1", "c  1", "n1"]
    assert lines(tmp_path / "train.de") == ["E1", "C1", "N1"]
    assert (made[0].pairs, made[0].dropped) == (3, {"not valid UTF-8": 1})


def test_iwslt_is_cleaned_held_out_and_joined_as_fairseq_does(
    server: Server, tmp_path: Path
) -> None:
    good = [f"Satz {i} ." for i in range(100)]
    train = ["<url>u</url>", *good[:50], "<title>a b c d e</title>", *good[50:], "x " * 176]
    other = ["<url>u</url>", *good[:50], "<title>a</title>", *good[50:], "x " * 176]
    members = {
        "de-en/train.tags.de-en.de": "\n".join(train).encode(),
        "de-en/train.tags.de-en.en": "\n".join(other).encode(),
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


def test_prepared_text_is_unescaped_and_raw_test_sets_are_made_like_it(
    server: Server, tmp_path: Path
) -> None:
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


@pytest.mark.skipif(not MULTI30K.exists(), reason="Multi30k is not here")
def test_multi30k_comes_out_as_it_was_published(server: Server, tmp_path: Path) -> None:
    names = ["train", "val", "test_2016_flickr"]
    originals = {f"{name}.{code}": (MULTI30K / f"{name}.{code}").read_bytes()
                 for name in names for code in ("en", "de")}  # fmt: skip
    files = {f"multi30k-{name}.gz": gzip.compress(text, 1) for name, text in originals.items()}
    made = job(server, "multi30k-en-de", tmp_path, files).run()
    assert [one.pairs for one in made] == [one.expected for one in made] == [29_000, 1014, 1000]
    assert {name: (tmp_path / name).read_bytes() for name in originals} == originals


def test_two_processes_make_the_same(server: Server, tmp_path: Path) -> None:
    files = small_files("iwslt14-de-en")
    for workers in (1, 2):
        out = tmp_path / str(workers)
        job(server, "iwslt14-de-en", out, files, workers=workers).run()
        (out / "fetch.json").unlink()
    one, two = ({p.name: p.read_bytes() for p in (tmp_path / n).glob("*.*")} for n in "12")
    assert one == two
    assert len(one) == 6


def test_what_is_there_is_not_fetched_again(server: Server, tmp_path: Path) -> None:
    files = small_files("multi30k-en-de")
    said: list[str] = []
    first = job(server, "multi30k-en-de", tmp_path, files).run()
    asked = len(server.asked)
    assert job(server, "multi30k-en-de", tmp_path, {}, say=said.append).run() == first
    assert len(server.asked) == asked == 6
    assert "nothing to do" in said[0]
    with pytest.raises(UserError, match="holds multi30k-en-de"):
        job(server, "wmt14-en-de", tmp_path, {}).run()
    (tmp_path / "val.de").unlink()
    with pytest.raises(DataError, match=r"val\.de: missing"):
        job(server, "multi30k-en-de", tmp_path, {}).run()


def test_after_a_failure_only_what_is_missing_is_fetched(server: Server, tmp_path: Path) -> None:
    files = small_files("multi30k-en-de")
    last = files.pop("multi30k-test_2016_flickr.de.gz")
    with pytest.raises(UserError, match=r"flickr\.de\.gz cannot be downloaded"):
        job(server, "multi30k-en-de", tmp_path, files).run()
    assert [path.name for path in tmp_path.iterdir()] == ["downloads"]
    server.asked.clear()
    job(server, "multi30k-en-de", tmp_path, {"multi30k-test_2016_flickr.de.gz": last}).run()
    assert [name for name, _ in server.asked] == ["multi30k-test_2016_flickr.de.gz"]


def test_a_published_checksum_that_differs_stops_all(server: Server, tmp_path: Path) -> None:
    files = small_files("wmt14-en-de")
    sources = served(server, files, md5=True)
    with pytest.raises(DataError, match=r"wmt13-test\.tgz: its checksum is \w+ and should be 48ec"):
        Fetch("wmt14-en-de", TABLE.datasets["wmt14-en-de"], sources, tmp_path).run()
    assert not (tmp_path / "downloads/wmt13-test.tgz").exists()
    assert (tmp_path / "downloads/training-parallel-nc-v9.tgz").exists()


def test_a_download_that_changed_since_is_named(server: Server, tmp_path: Path) -> None:
    files = small_files("multi30k-en-de")
    job(server, "multi30k-en-de", tmp_path, files).run()
    (tmp_path / "fetch.json").unlink()
    path = tmp_path / "downloads/multi30k-train.en.gz"
    subprocess.run(["sha256sum", "--check", f"{path.name}.sha256"], cwd=path.parent, check=True)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(DataError, match=r"multi30k-train\.en\.gz: its checksum"):
        job(server, "multi30k-en-de", tmp_path, {}).run()


def test_archives_at_hand_are_taken_and_the_rest_is_downloaded(
    server: Server, tmp_path: Path
) -> None:
    files = small_files("multi30k-en-de")
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in sorted(files)[1:]:
        (folder / name).write_bytes(files[name])
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    job(server, "multi30k-en-de", tmp_path / "out", files, folder=folder).run()
    assert [name for name, _ in server.asked] == sorted(files)[:1]
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    result = run(
        "fetch", "multi30k-en-de", "-o", str(tmp_path / "o"), "--from", str(tmp_path / "x")
    )
    assert isinstance(result.exception, UserError)
    assert "x is no folder" in str(result.exception)


def test_the_record_says_what_was_read(server: Server, tmp_path: Path) -> None:
    files = small_files("multi30k-en-de")
    job(server, "multi30k-en-de", tmp_path, files).run()
    record = json.loads((tmp_path / "fetch.json").read_text(encoding="utf-8"))
    assert record["sources"]["multi30k-val-en"]["bytes"] == len(files["multi30k-val.en.gz"])
    assert record["files"][0] == {"name": "train", "pairs": 60, "expected": 29000, "dropped": {}}


def test_chinese_without_jieba_is_refused_before_anything_is_downloaded(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nmtdeep.text import chinese

    monkeypatch.setitem(__import__("sys").modules, "jieba", None)
    chinese.jieba.cache_clear()
    with pytest.raises(UserError, match=r'pip install "nmtdeep\[chinese\]"'):
        job(server, "wmt18-zh-en", tmp_path / "out", {}).run()
    assert server.asked == []
    assert not (tmp_path / "out").exists()


def test_names_licenses_and_addresses_are_shown_first(tmp_path: Path) -> None:
    result = run("fetch", "wmt15-cs-en", "-o", str(tmp_path / "out"), "--dry-run")
    assert result.exit_code == 0
    assert "czeng10-data-plaintext-format.tar: CzEng 1.0, CC BY-NC-SA 3.0" in result.stdout
    assert "https://statmt.org/wmt15/test.tgz" in result.stdout
    assert not (tmp_path / "out").exists()


def test_other_numbers_of_pairs_than_published_are_said(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(sources=served(server, small_files("multi30k-en-de")), datasets=TABLE.datasets)
    monkeypatch.setattr("nmtdeep.fetching.catalog.load_table", lambda: table)
    result = run("fetch", "multi30k-en-de", "-o", str(tmp_path), "--workers", "1")
    assert "train: 60 pairs\n  others report 29,000:" in result.stdout
