"""Scripts of benchmarks/ as modules."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
Load = Callable[[str], ModuleType]


@pytest.fixture(scope="package")
def load():
    """`load("depth")`: the script depth.py; the name may also be that of a test package."""

    def script(name: str) -> ModuleType:
        alias = f"benchmark_{name}"
        if alias not in sys.modules:
            spec = importlib.util.spec_from_file_location(alias, FOLDER / f"{name}.py")
            assert spec is not None and spec.loader is not None
            sys.modules[alias] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[alias])
        return sys.modules[alias]

    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        yield script
