"""Rules for the code that a test can check: layers, and help that answers at once."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
# A module belongs to the longest name here that it starts with, and imports from its own layer or
# below. A module that no name covers fails the test: add it here.
LAYERS = {
    # Ground: no torch at import.
    "nmtdeep": 0,
    "nmtdeep.config": 0,
    "nmtdeep.devices": 0,
    "nmtdeep.errors": 0,
    "nmtdeep.files": 0,
    "nmtdeep.memory": 0,
    "nmtdeep.tables": 0,
    "nmtdeep.units": 0,
    # Data.
    "nmtdeep.packing": 1,
    "nmtdeep.text": 1,
    "nmtdeep.data": 1,
    # Modules: tensors in, tensors out.
    "nmtdeep.model.kernels": 2,
    "nmtdeep.model.layers": 2,
    # Assembly: the only place where a config value becomes a module.
    "nmtdeep.model": 3,
    # Procedures.
    "nmtdeep.training": 4,
    "nmtdeep.decoding": 4,
    "nmtdeep.checkpoint": 4,
    "nmtdeep.averaging": 4,
    "nmtdeep.growing": 4,
    "nmtdeep.preprocessing": 4,
    "nmtdeep.scoring": 4,
    "nmtdeep.analysis": 4,
    "nmtdeep.inspection": 4,
    # Tools: only commands import them.
    "nmtdeep.tools": 5,
    # Commands and the Python interface.
    "nmtdeep.cli": 6,
    "nmtdeep.interface": 6,
    # For packages that add variants.
    "nmtdeep.variants": 3,
    "nmtdeep.testing": 6,
    "nmtdeep.__main__": 6,
}
# `import nmtdeep` imports this on first access to its attributes.
LAZY = {"nmtdeep": ("nmtdeep.interface",)}
# Statements whose imports do not run when their module is imported, or only for types.
SUITES = (ast.If, ast.FunctionDef, ast.ClassDef)
# Imports that the layers would allow and that must not be.
FORBIDDEN = {
    "nmtdeep.config": ("torch", "numpy", "nmtdeep.text", "nmtdeep.data"),
    "nmtdeep.text": ("torch",),
    "nmtdeep.model.kernels": ("nmtdeep.config", "nmtdeep.text", "nmtdeep.data", "pathlib"),
    "nmtdeep.model.layers": ("nmtdeep.config", "nmtdeep.text", "nmtdeep.data", "pathlib"),
    "nmtdeep.decoding.search": ("nmtdeep.config", "nmtdeep.text", "nmtdeep.data", "nmtdeep.model"),
    "nmtdeep.decoding.blocks": ("nmtdeep",),
    "nmtdeep.scoring.comet_worker": ("nmtdeep",),  # another Python runs it
    "nmtdeep.model": ("nmtdeep.data",),
    "nmtdeep.data": ("torch.nn",),
    "nmtdeep": ("pickle",),
}


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted((ROOT / "nmtdeep").rglob("*.py"))}


def imports(name: str, tree: ast.AST) -> Iterator[str]:
    """Every module or object that a module imports, inside functions too, by its full name."""
    package = name if MODULES[name].name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                parts = package.split(".")
                above = parts[: len(parts) - node.level + 1]
                origin = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def module_of(name: str) -> str:
    """The module itself, or the one that an imported object is defined in."""
    while name not in MODULES:
        name = name.rpartition(".")[0]
    return name


def layer(name: str) -> int:
    name = module_of(name)
    prefixes = [key for key in LAYERS if within(name, key) and (key != "nmtdeep" or name == key)]
    assert prefixes, f"{name} has no layer: add it to LAYERS"
    return LAYERS[max(prefixes, key=len)]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_a_module_imports_from_its_own_layer_or_below():
    problems = []
    for name, path in MODULES.items():
        imported = list(imports(name, parsed(path)))
        ours = [target for target in imported if within(target, "nmtdeep")]
        lazy = LAZY.get(name, ()) or "-"
        above = [path for path in ours if layer(path) > layer(name) and not path.startswith(lazy)]
        problems += [f"{name} (layer {layer(name)}) imports from above: {path}" for path in above]
        forbidden = [
            prefix for key, names in FORBIDDEN.items() if within(name, key) for prefix in names
        ]
        met = [target for target in imported if any(within(target, each) for each in forbidden)]
        problems += [f"{name} must not import {target}" for target in met]
    assert not problems, "\n".join(problems)


def test_only_commands_import_tools():
    for name, path in MODULES.items():
        tools = any(within(target, "nmtdeep.tools") for target in imports(name, parsed(path)))
        assert not tools or within(name, "nmtdeep.cli") or within(name, "nmtdeep.tools"), name


def test_no_circle_of_modules():
    """Types aside, and what a function imports when it is called."""
    graph = {}
    for name, path in MODULES.items():
        at_import = [node for node in parsed(path).body if not isinstance(node, SUITES)]
        found = imports(name, ast.Module(at_import, []))
        graph[name] = {module_of(target) for target in found if within(target, "nmtdeep")}
    TopologicalSorter(graph).prepare()


def test_help_does_not_wait_for_torch():
    code = (
        "import sys; from nmtdeep.cli.main import app\n"
        "for command in ([], ['train'], ['serve']):\n"
        "    try: app([*command, '--help'])\n"
        "    except SystemExit as left: assert not left.code\n"
        "slow = {'torch', 'numpy', 'matplotlib', 'starlette', 'sacrebleu', 'sacremoses'}\n"
        "slow &= set(sys.modules)\n"
        "sys.exit(f'imported {slow}' if slow else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Usage:") == 3
