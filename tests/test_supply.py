"""Installed and shipped files: locks, dependencies, wheel and source archive."""

import ast
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ROOT / "requirements"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
# Extras whose packages the package imports where they are.
OPTIONAL = (
    "chinese",
    "export",
    "firefox",
    "language-id",
    "mbr",
    "pictures",
    "report",
    "serve",
    "zstd",
)
# Imported by the name that Python's version has for it.
BY_VERSION = {"backports-zstd"}
# What is imported of extras outside the locks.
UNLOCKED = {"comet", "huggingface_hub", "pynvml", "wandb"}
# Comes with torch for CUDA on Linux, and is imported where it is.
WITH_TORCH = {"triton"}
CUDA = re.compile(r"triton|nvidia-|cuda-")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def names(requirements: list[str]) -> set[str]:
    return {normal(re.split(r"[<>=~! \[;]", each)[0]) for each in requirements}


def pins(path: Path) -> set[str]:
    pinned = re.findall(r"^([\w.-]+)==([^\s;]+)", path.read_text(encoding="utf-8"), re.M)
    return {f"{normal(name)}=={version}" for name, version in pinned}


def test_the_locks_are_the_constraints_and_what_torch_needs_for_cuda():
    locked = set().union(*map(pins, LOCKS.glob("*.txt")))
    builds = {pin for pin in locked if pin.startswith("torch==")}
    constraints = pins(ROOT / "constraints.txt")
    assert {pin for pin in locked - builds if not CUDA.match(pin)} == {
        pin for pin in constraints if not pin.startswith("torch==")
    }
    assert {pin.partition("+")[0] for pin in builds} <= constraints


def test_the_locks_hold_every_requirement():
    needed = names([*PROJECT["dependencies"], *EXTRAS["development"]])
    for torch in ("torch.txt", "torch-cpu.txt"):
        locks = (LOCKS / "build.txt", LOCKS / "development.txt", LOCKS / torch)
        together = set().union(*map(pins, locks))
        assert needed <= {pin.partition("==")[0] for pin in together}
    assert names(EXTRAS["benchmark"]) <= {
        pin.partition("==")[0] for pin in pins(LOCKS / "benchmark.txt")
    }
    optional = [pin for extra in OPTIONAL for pin in EXTRAS[extra]]
    assert names(optional) <= names(EXTRAS["development"])


def test_the_package_imports_what_it_declares_and_nothing_else():
    imported = set()
    for path in (ROOT / "nmtdeep").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            if isinstance(node, ast.ImportFrom) and not node.level:
                imported.add(str(node.module).partition(".")[0])
    owners = packages_distributions()
    assert imported >= UNLOCKED
    foreign = imported - set(sys.stdlib_module_names) - {"nmtdeep", *UNLOCKED, *WITH_TORCH}
    optional = [pin for extra in OPTIONAL for pin in EXTRAS[extra]]
    assert {normal(owner) for name in foreign for owner in owners[name]} == names(
        [*PROJECT["dependencies"], *optional]
    ) - BY_VERSION


def test_only_tests_of_packages_outside_the_locks_may_skip():
    outside = {"comet", "ray", "transformers"}
    skipping = {
        name.partition(".")[0]
        for path in (ROOT / "tests").rglob("*.py")
        for name in re.findall(r'importorskip\("([\w.]+)"', path.read_text(encoding="utf-8"))
    }
    known = {normal(name) for name in skipping - outside}
    assert known <= names(EXTRAS["development"]) | {"backports"}


# Wheel and source archive


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The source archive and the wheel, as hatchling builds them from this checkout."""
    out = tmp_path_factory.mktemp("dist")
    return build(ROOT, out, "sdist", "*.tar.gz"), build(ROOT, out, "wheel", "*.whl")


def build(source: Path, out: Path, kind: str, pattern: str) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(out)]
    subprocess.run(command, check=True, cwd=source, capture_output=True)
    return next(out.glob(pattern))


def files(folder: str, below: str) -> set[str]:
    """Files of a folder of the checkout, as a package is to name them."""
    paths = (path.relative_to(ROOT / folder) for path in (ROOT / folder).rglob("*"))
    return {
        f"{below}/{path.as_posix()}"
        for path in paths
        if (ROOT / folder / path).is_file() and "__pycache__" not in path.parts
    }


@pytest.mark.slow
def test_the_wheel_holds_the_package_the_recipes_and_the_licenses(built):
    about = f"nmtdeep-{PROJECT['version']}.dist-info"
    described = {"METADATA", "WHEEL", "RECORD", "entry_points.txt"}
    licenses = {f"licenses/{name}" for name in PROJECT["license-files"]}
    with zipfile.ZipFile(built[1]) as wheel:
        assert set(wheel.namelist()) == (
            files("nmtdeep", "nmtdeep")
            | files("recipes", "nmtdeep/recipes")
            | {f"{about}/{name}" for name in described | licenses}
        )
        for name in PROJECT["license-files"]:
            assert wheel.read(f"{about}/licenses/{name}") == (ROOT / name).read_bytes()


@pytest.mark.slow
def test_the_source_archive_holds_the_sources_and_builds_the_same_wheel(built, tmp_path):
    top = f"nmtdeep-{PROJECT['version']}"
    beside = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "PKG-INFO", ".gitignore"}
    with tarfile.open(built[0]) as archive:
        assert set(archive.getnames()) == (
            files("nmtdeep", f"{top}/nmtdeep")
            | files("recipes", f"{top}/recipes")
            | {f"{top}/{name}" for name in beside}
        )
    shutil.unpack_archive(built[0], tmp_path)
    (source,) = tmp_path.iterdir()
    again = build(source, tmp_path / "again", "wheel", "*.whl")
    assert again.read_bytes() == built[1].read_bytes()
