"""Only the wanted members are taken out of an archive, and only to the given paths."""

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from nmtdeep.errors import DataError
from nmtdeep.tools.fetch.archive import unpack

from .archives import tar


def archive(folder: Path, content: bytes, name: str = "a.tgz") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_only_wanted_members_are_unpacked_in_place_of_an_earlier_run(tmp_path):
    path = archive(tmp_path, tar({"x/one": b"1\n", "x/two": b"2\n", "./three": b"3\n"}))
    (tmp_path / "v").write_bytes(b"old")
    unpack(path, {"x/one": tmp_path / "u/0", "three": tmp_path / "v"})
    assert everything(tmp_path) == {"a.tgz", "u/0", "v"}
    assert (tmp_path / "u/0").read_bytes() == b"1\n"
    assert (tmp_path / "v").read_bytes() == b"3\n"


def test_compressed_members_are_unpacked_and_patterns_concatenated(tmp_path):
    members = {"d/00train.gz": b"a\n", "d/00test.gz": b"b\n", "d/01train.gz": b"c\n"}
    content = tar({name: gzip.compress(text) for name, text in members.items()}, mode="w")
    unpack(archive(tmp_path, content, "a.tar"), {"d/*train.gz": tmp_path / "u"})
    assert (tmp_path / "u").read_bytes() == b"a\nc\n"
    unpack(archive(tmp_path, gzip.compress(b"x\n"), "a.gz"), {None: tmp_path / "u"})
    assert (tmp_path / "u").read_bytes() == b"x\n"


@pytest.mark.parametrize("name", ["../outside", "/outside"])
def test_member_names_that_lead_out_of_the_folder_have_no_effect(tmp_path, name):
    inside = tmp_path / "in"
    inside.mkdir()
    content = tar({name: b"evil", "one": b"1"})
    unpack(archive(inside, content), {"one": inside / "u", "*outside": inside / "v"})
    assert everything(tmp_path) == {"in/a.tgz", "in/u", "in/v"}


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE]
)
def test_links_and_devices_are_refused(tmp_path, kind):
    (tmp_path / "secret").write_text("mine")
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as packed:
        info = tarfile.TarInfo("one")
        info.type, info.linkname = kind, str(tmp_path / "secret")
        packed.addfile(info)
    path = archive(tmp_path, out.getvalue())
    with pytest.raises(DataError, match="one is not a regular file"):
        unpack(path, {"one": tmp_path / "u"})
    assert not (tmp_path / "u").exists()


@pytest.mark.parametrize(
    ("members", "message"),
    [(("one", "./one", "two"), "one occurs twice"), (("one",), r"a\.tgz: two is missing")],
)
def test_a_member_is_there_once(tmp_path, members, message):
    path = archive(tmp_path, tar(dict.fromkeys(members, b"1")))
    with pytest.raises(DataError, match=message):
        unpack(path, {"one": tmp_path / "u", "two": tmp_path / "v"})


@pytest.mark.parametrize("kind", ["gz", "tgz", "member"])
def test_an_archive_that_unpacks_to_more_than_text_can_is_refused(tmp_path, kind):
    bomb = bytes(30 << 20)
    content = {
        "gz": gzip.compress(bomb),
        "tgz": tar({"one.gz": gzip.compress(b"fine"), "two": bomb}),
        "member": tar({"one.gz": gzip.compress(bomb), "two": b"fine"}, mode="w"),
    }[kind]
    path = archive(tmp_path, content, "a.gz" if kind == "gz" else "a.tgz")
    members = {None: "u"} if kind == "gz" else {"one.gz": "u", "two": "v"}
    with pytest.raises(DataError, match="100 times"):
        unpack(path, {name: tmp_path / to for name, to in members.items()}, extra_bytes=1 << 20)
    assert sum(f.stat().st_size for f in tmp_path.glob("[uv]")) < 10 << 20


@pytest.mark.parametrize("damage", ["half", "noise", "empty"])
def test_damage_is_reported_with_a_hint(tmp_path, damage):
    text = "".join(f"line {i * i}\n" for i in range(20_000)).encode()
    content = tar({"one": text})
    half = content[: len(content) // 2]
    damaged = {"half": half, "noise": b"\x13\x37" * 5000, "empty": b""}[damage]
    with pytest.raises(DataError, match=r"a\.tgz: .*(delete it|publisher's archive)"):
        unpack(archive(tmp_path, damaged), {"one": tmp_path / "u"})
