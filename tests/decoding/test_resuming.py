"""An output that was cut off anywhere and resumed is the whole output."""

from pathlib import Path

import pytest

from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.decoding import resuming, streams
from nmtdeep.decoding.resuming import ResumePoint
from nmtdeep.errors import UserError

CHUNK = 3


@pytest.fixture
def source(tiny_run, tmp_path):
    lines = [*tiny_run.sources[:4], "", *tiny_run.sources[4:8]]
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return tmp_path / "in"


def resumed(source, output, **changes):
    arguments = {"form": "text", "buffer": CHUNK} | changes
    how = {name: arguments.pop(name) for name in ("form", "buffer")}
    options = DecodingOptions(**arguments)
    return resuming.resume_point(str(source), str(output), **how, options=options)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["text", "json", "tsv", "fairseq"])
@pytest.mark.parametrize("n_best", [1, 2])
def test_an_output_cut_off_anywhere_is_completed(translator, source, tmp_path, form, n_best):
    model, output = translator(n_best=n_best, beam=2), str(tmp_path / "out")
    written: list[str] = []
    into = streams.Destination(written.append, form)
    streams.translate(model, str(source), into, buffer=CHUNK)
    whole = "".join(written).encode()
    assert len(written) == 3
    # As the same chunks come again and again, they are not translated again and again.
    known = dict(zip((0, 3, 6), written, strict=True))
    for size in {
        *range(0, len(whole), 1 + len(whole) // 50),
        *range(len(whole) - 9, len(whole) + 1),
    }:
        (tmp_path / "out").write_bytes(whole[:size])
        point = resumed(source, Path(output), form=form, n_best=n_best)
        assert point.first % CHUNK == 0 and 0 <= point.lines - point.first <= CHUNK
        assert point.start == len("".join(known[at] for at in known if at < point.first).encode())
        with resuming.writer(output, point) as write:
            for first in range(point.first, 9, CHUNK):
                write(known[first])
        assert (tmp_path / "out").read_bytes() == whole
    rest: list[str] = []
    into = streams.Destination(rest.append, form)
    assert streams.translate(model, str(source), into, buffer=CHUNK, first=6) == 9
    assert rest == written[2:]


@pytest.mark.parametrize("form", ["text", "json", "tsv", "fairseq"])
def test_a_list_of_one_candidate_is_resumed(translator, source, tmp_path, form):
    """A prefix as long as the limit on the length can be continued in one way only."""
    source.write_text("Move.\t" + "Ein Satz " * 9 + "\nMove.\t\n")
    model = translator(
        n_best=2, beam=2, prefix_column=True, max_length_factor=0, max_length_constant=2
    )
    translations = model.translate(source.read_text().splitlines())
    assert [len(each.candidates) for each in translations] == [1, 2]
    with streams.writer(str(tmp_path / "out")) as write:
        streams.translate(model, str(source), streams.Destination(write, form))
    size = (tmp_path / "out").stat().st_size
    assert resumed(source, tmp_path / "out", form=form, n_best=2).lines == 2
    with (tmp_path / "out").open("r+b") as file:
        file.truncate(size - 1)
    assert resumed(source, tmp_path / "out", form=form, n_best=2).start == 0


def test_an_incomplete_line_does_not_count(source, tmp_path):
    out = tmp_path / "out"
    assert resumed(source, out) == ResumePoint()
    for text, lines, first, start in (
        ("", 0, 0, 0),
        ("a", 0, 0, 0),
        ("a\nb\nc\n", 3, 0, 0),
        ("a\nb\nc\nd\n\u2028e", 4, 3, 6),
    ):
        out.write_text(text, "utf-8")
        assert resumed(source, out) == ResumePoint(lines, first, start)


def test_other_translations_are_kept(source, tmp_path):
    out = tmp_path / "out"
    out.write_text("eins\nzwei\nd")
    point = resumed(source, out)
    with (
        pytest.raises(UserError, match="other translations of input lines 1 to 2: resume with"),
        resuming.writer(str(out), point) as write,
    ):
        write("eins\nzwo\ndrei\n")
    assert out.read_text() == "eins\nzwei\nd"


@pytest.mark.parametrize(
    ("text", "changes", "said"),
    [
        ("a\n" * 10, {}, "10 lines, but .*in has 9"),
        ("a\nb\n", {"form": "tsv"}, r"--format tsv \(after 0"),
        ("1\t1\tx\n3\t1\ty\n", {"form": "tsv"}, r"\(after 1"),
        ("S-0\ta\n", {"n_best": 2}, "--format text"),
        ("", {"sampling": True}, "leave one of them out"),
    ],
)
def test_an_output_of_another_command_is_refused(source, tmp_path, text, changes, said):
    out = tmp_path / "out"
    out.write_text(text)
    with pytest.raises(UserError, match=said):
        resumed(source, out, **changes)
    assert out.read_text() == text


def test_pipes_and_compressed_files_cannot_be_resumed(source, tmp_path):
    for name, output, said in (
        (str(source), "-", "pass --output FILE"),
        (str(source), str(tmp_path / "out.gz"), "not compressed"),
        ("-", str(tmp_path / "out"), "pass --input FILE"),
        (str(source), str(tmp_path), "is not a file"),
    ):
        with pytest.raises(UserError, match=said):
            resumed(Path(name), Path(output))


def test_two_commands_do_not_write_one_file(tmp_path):
    out = tmp_path / "out"
    with resuming.writer(str(out), ResumePoint()) as write:
        write("eins\n")
        with (
            pytest.raises(UserError, match="another process is writing it"),
            resuming.writer(str(out), ResumePoint(1, 0, 0)) as second,
        ):
            second("zwei\n")
    assert out.read_text() == "eins\n"
