"""Packages with variants, as pip would install them."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest


def installed(
    package: str,
    code: str,
    variants: Mapping[str, str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[None]:
    """A package while a fixture is in use; `variants` are classes by `type`."""
    info = folder / f"{package}-1.dist-info"
    info.mkdir(parents=True)
    (folder / package).mkdir(exist_ok=True)
    (folder / package / "__init__.py").write_text(code, encoding="utf-8")
    (info / "METADATA").write_text(f"Name: {package}\nVersion: 1\n")
    points = "".join(f"{name} = {package}:{each}\n" for name, each in variants.items())
    (info / "entry_points.txt").write_text(f"[nmtdeep.variants]\n{points}")
    monkeypatch.syspath_prepend(folder)
    yield
    sys.modules.pop(package, None)
