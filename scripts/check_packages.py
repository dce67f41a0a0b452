"""Build the wheel and the source archive, install the wheel elsewhere, and use it there.

    python scripts/check_packages.py OUT [--python PYTHON ...] [--demo]

OUT must not exist; it gets the two files, an environment for each PYTHON (default: the one that
runs this) and what the commands write. A wheel built from the unpacked source archive must be the
same file, byte for byte. Each environment starts empty, gets the wheel with the versions of
constraints.txt, and runs commands from a folder that is outside of every checkout: a journey from
raw text to translations in five updates, and with --demo the whole `nmtdeep demo`, which takes
minutes. Needs hatchling; exit code 1 at the first thing
that fails.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = ("--version", "recipes list", "recipes show multi30k-en-de-deep", "demo --help")


def run(*command: str | Path, folder: Path) -> str:
    """The output of a command, run outside this checkout and this environment."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        command, check=False, cwd=folder, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        words = " ".join(map(str, command))
        raise SystemExit(f"{words}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def build(source: Path, out: Path, *kinds: str) -> list[Path]:
    """Build from a folder with a pyproject.toml; what was made, in the order of `kinds`."""
    targets = [word for kind in kinds for word in ("-t", kind)]
    run(sys.executable, "-m", "hatchling", "build", "-d", out, *targets, folder=source)
    endings = {"sdist": "*.tar.gz", "wheel": "*.whl"}
    return [next(out.glob(endings[kind])) for kind in kinds]


def check_source(archive: Path, wheel: Path, out: Path) -> None:
    """The unpacked source archive builds the same wheel."""
    shutil.unpack_archive(archive, out)
    (again,) = build(out / archive.name.removesuffix(".tar.gz"), out, "wheel")
    if again.read_bytes() != wheel.read_bytes():
        raise SystemExit(f"{archive.name} builds another wheel than the checkout: {again}")


def install(python: str, wheel: Path, folder: Path) -> Path:
    """Install the wheel into a new environment; the folder of its commands."""
    run(python, "-m", "venv", folder / "venv", folder=folder)
    commands = folder / "venv" / "bin"
    pins = ROOT / "constraints.txt"
    run(commands / "python", "-m", "pip", "install", "-q", "-c", pins, wheel, folder=folder)
    run(commands / "python", "-m", "pip", "check", folder=folder)
    return commands


def journey(commands: Path, folder: Path) -> None:
    """Preprocess, train and translate a little of the corpus that the wheel brings."""
    code = "import nmtdeep, pathlib; print(pathlib.Path(nmtdeep.__file__).parent)"
    package = Path(run(commands / "python", "-c", code, folder=folder).strip())
    if not package.is_relative_to(folder):
        raise SystemExit(f"{package} is not what was installed into {folder}")
    for language in ("en", "de"):
        lines = (package / "demo" / "corpus" / f"test.{language}").read_bytes().split(b"\n")
        for name, part in (("train", lines[:400]), ("valid", lines[400:410])):
            (folder / f"{name}.{language}").write_bytes(b"\n".join([*part, b""]))
    for words in (
        "preprocess demo --train train --valid valid --out data --workers 1 -q",
        "train demo --data data --out run --max-updates 5 -q",
        "translate -m run -i valid.en -o translated.de",
    ):
        run(commands / "nmtdeep", *words.split(), folder=folder)
    count = len((folder / "translated.de").read_bytes().split(b"\n")) - 1
    if count != 10:
        raise SystemExit(f"translated.de has {count} lines instead of 10")


def demo(commands: Path, folder: Path) -> str:
    """Run the whole demo; its score on the test set."""
    began = time.monotonic()
    run(commands / "nmtdeep", "demo", "--out", "demo", folder=folder)
    minutes = (time.monotonic() - began) / 60
    report = json.loads((folder / "demo" / "run" / "scores.json").read_text())
    bleu = next(score["value"] for score in report["scores"]["test"] if score["metric"] == "bleu")
    return f"demo: test BLEU {bleu:.2f} at {report['trained_to']}, in {minutes:.1f} minutes"


def main() -> None:
    """Build, compare, and for each Python install and use."""
    parser = argparse.ArgumentParser(description="Build, install elsewhere, use")
    parser.add_argument("out", type=Path, help="must not exist; outside of the checkout")
    parser.add_argument("--python", nargs="+", default=[sys.executable], help="interpreters")
    parser.add_argument("--demo", action="store_true", help="run the whole demo too")
    options = parser.parse_args()
    out = options.out.resolve()
    if out.is_relative_to(ROOT):
        raise SystemExit(f"{out} is inside the checkout: choose a folder elsewhere")
    out.mkdir(parents=True)
    archive, wheel = build(ROOT, out, "sdist", "wheel")
    check_source(archive, wheel, out / "source")
    print(f"{archive.name} and {wheel.name}: the one builds the other, byte for byte")
    for python in options.python:
        version = run(python, "-c", "import platform; print(platform.python_version())", folder=out)
        folder = out / version.strip()
        folder.mkdir()
        commands = install(python, wheel, folder)
        for words in COMMANDS:
            run(commands / "nmtdeep", *words.split(), folder=folder)
        journey(commands, folder)
        print(f"Python {version.strip()}: installed; {len(COMMANDS)} commands and a short journey")
        if options.demo:
            print(f"Python {version.strip()}: {demo(commands, folder)}")


if __name__ == "__main__":
    main()
