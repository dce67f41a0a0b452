"""Archives of the publishers' forms, as small as possible."""

import gzip
import io
import tarfile
from collections.abc import Mapping

from nmtdeep.tools.fetch.catalog import Catalog, Dataset, ParallelFiles, split_member


def tar(members: Mapping[str, bytes], *, mode: str = "w:gz") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def sgm(lines: list[str]) -> bytes:
    """As WMT's: a head, documents, a segment a line."""
    segments = "".join(f'<seg id="{i}">{line}</seg>\n' for i, line in enumerate(lines, 1))
    return (
        '<srcset setid="newstest2013" srclang="any">\n<doc sysid="ref" docid="a/1" '
        f'genre="news" origlang="en">\n<p>\n{segments}</p>\n</doc>\n</srcset>\n'
    ).encode()


def xml(lines: list[str]) -> bytes:
    """As IWSLT's: blanks around the text of a segment; titles and keywords."""
    segments = "".join(f'<seg id="{i}"> {line} </seg>\n' for i, line in enumerate(lines, 1))
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<mteval>\n<srcset setid="dev2010" '
        'srclang="german">\n<doc docid="69" genre="lectures">\n<keywords>talks, film</keywords>\n'
        f"<title>A talk</title>\n{segments}</doc>\n</srcset>\n</mteval>\n"
    ).encode()


def small(catalog: Catalog, dataset: Dataset, *, lines: int = 60) -> dict[str, bytes]:
    """Every source of a dataset: name of its file, and an archive with every member it needs."""
    parts = {place: part for out in dataset.outputs.values() for part in out.parts
             for place in part.files}  # fmt: skip
    files = {}
    for name in dataset.sources:
        members = {
            split_member(place)[1]: _content(place, parts[place], dataset, lines)
            for place in dataset.files
            if split_member(place)[0] == name
        }
        file = catalog.sources[name].file
        if None in members:
            files[file] = gzip.compress(members[None])
        else:
            named = {str(member).replace("*", "01"): text for member, text in members.items()}
            packed = {
                member: gzip.compress(text) if member.endswith(".gz") else text
                for member, text in named.items()
            }
            beside = {"README": b"not wanted", "../../outside": b"not wanted"}
            files[file] = tar({**beside, **packed}, mode="w:" + "gz" * file.endswith("gz"))
    return files


def _content(place: str, part: ParallelFiles, dataset: Dataset, lines: int) -> bytes:
    text = [f"This is line {i} , cat and dog and cat ." for i in range(lines)]
    if dataset.languages[0] == "zh" and place == part.files[0] and part.form != "table":
        text = [f"这 是 第 {i} 行 。" for i in range(lines)]
    match part.form:
        case "text":
            return "".join(f"{line}\n" for line in text).encode()
        case "sgm":
            return xml(text) if place.endswith(".xml") else sgm(text)
        case "iwslt":
            return "".join(f"{line}\n" for line in ["<url>x</url>", *text]).encode()
        case "table":
            return "".join(f"{line}\t{line}\t{line}\t{line}\n" for line in text).encode()
