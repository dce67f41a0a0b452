"""The example of docs/examples with Ray: shards on two workers equal one machine, byte by byte."""

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from nmtdeep.config.render import to_yaml

SCRIPT = Path(__file__).parents[1] / "docs" / "examples" / "shards_with_ray.py"
# Ray's interface, every task at once in the process that asks for it.
STAND_IN = """
def init():
    pass

def get(results):
    return results

def remote(**resources):
    def decorated(function):
        function.remote = function
        return function
    return decorated
"""
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["two workers of Ray", "this machine alone"])
def python(request, tmp_path_factory):
    """Runs Python with Ray, or with a stand-in that shows what does not depend on it."""
    patch = pytest.MonkeyPatch()
    request.addfinalizer(patch.undo)
    if request.param == "this machine alone":
        folder = tmp_path_factory.mktemp("stand-in")
        (folder / "ray.py").write_text(STAND_IN)
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    else:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_AUTH_MODE", "token")  # read by the import
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))  # else one is written to ~/.ray
        ray = pytest.importorskip("ray", reason="Ray is not installed: pip install ray")
        started = ray.init(num_cpus=2, include_dashboard=False)
        request.addfinalizer(ray.shutdown)
        patch.setenv("RAY_ADDRESS", started.address_info["gcs_address"])

    def run(folder, *words):
        command = [sys.executable, *map(str, words)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    return run


@pytest.fixture
def corpus(tiny_run, tmp_path):
    """A text of 50 pairs, whole and in three shards, and the recipe."""
    (tmp_path / "shards").mkdir()
    for language in ("en", "de"):
        text = (tiny_run.data.path.parent / f"train.{language}").read_text(encoding="utf-8")
        lines = text.splitlines(keepends=True)
        (tmp_path / f"whole.{language}").write_text(text, encoding="utf-8")
        for number, shard in enumerate((lines[:20], lines[20:40], lines[40:])):
            file = tmp_path / "shards" / f"{number:02}.{language}"
            file.write_text("".join(shard), encoding="utf-8")
    (tmp_path / "recipe.yaml").write_text(to_yaml(tiny_run.recipe.model_dump(mode="json")))
    return tmp_path


def contents(folder):
    return {
        path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def test_a_data_directory_of_shards_is_that_of_one_machine(python, corpus, tiny_run):
    valid = tiny_run.data.path.parent / "valid"
    words = ["preprocess", "recipe.yaml", "shards", "--valid", valid, "--out", "merged"]
    python(corpus, SCRIPT, *words)
    learned = corpus / "merged.parts" / "00"
    words = ["--train", "whole", "--valid", valid, "--text", learned, "--out", "one"]
    python(corpus, "-m", "nmtdeep", "preprocess", "recipe.yaml", *words)
    one, merged = contents(corpus / "one"), contents(corpus / "merged")
    assert one.keys() == merged.keys()
    assert [name for name in one if one[name] != merged[name]] == []


def test_a_distilled_text_of_shards_is_that_of_one_machine(python, corpus, tiny_run):
    search = ["--pick", "reference", "--beam", 3, "--max-tokens", 300]
    python(corpus, SCRIPT, "distill", tiny_run.path, "shards", "--out", "joined", *search)
    command = ["-m", "nmtdeep", "distill", tiny_run.path, "--train", "whole", "--out", "one"]
    python(corpus, *command, "--threads", 1, *search)
    for language in ("en", "de"):
        one = (corpus / f"one.{language}").read_bytes()
        assert one.count(b"\n") == 50
        assert (corpus / f"joined.{language}").read_bytes() == one
