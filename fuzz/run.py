"""Drive one reader with a coverage-guided fuzzer, from the kept seeds on.

    python fuzz/run.py recipe --runs 1000000

needs the extra `fuzz` (atheris: Linux). Inputs with new coverage are gathered in --corpus, from
which the next run goes on. An input that breaks a promise ends the run and is written beside it as
TARGET-crash-...; `python fuzz/run.py recipe --show FILE` plays it again, without atheris. Options
of libFuzzer are passed on: `-max_total_time=60`, `-merge=1`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SEEDS = ROOT / "fuzz" / "seeds"
MEMORY = Path("/dev/shm")
# Only what is ours and what it leans on closely: what is instrumented is slower. The targets too:
# read and refused differ there, also where a library in another language decides.
INSTRUMENTED = ["nmtdeep", "subword_nmt", "targets", "text_targets"]


def main() -> int:
    """Read the arguments and run the campaign in a process of its own; its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", help="a name in fuzz/targets.py, TARGETS")
    parser.add_argument("--runs", type=int, default=1_000_000, help="executions")
    parser.add_argument("--seed", type=int, default=1, help="of the mutations")
    parser.add_argument("--longest", type=int, default=2048, help="longest input, in bytes")
    parser.add_argument("--corpus", type=Path, help="default: ./fuzz-corpus/TARGET")
    parser.add_argument("--show", type=Path, help="run this input alone, without atheris")
    arguments, more = parser.parse_known_args()
    sys.path[:0] = [str(ROOT), str(ROOT / "fuzz")]
    if arguments.show:
        from targets import TARGETS

        TARGETS[arguments.target](arguments.show.read_bytes())
        return 0
    corpus = arguments.corpus or Path("fuzz-corpus") / arguments.target
    corpus.mkdir(parents=True, exist_ok=True)
    options = [
        f"-runs={arguments.runs}",
        f"-seed={arguments.seed}",
        f"-max_len={arguments.longest}",
        f"-artifact_prefix={corpus.parent}/{arguments.target}-",
        "-timeout=30",
        "-rss_limit_mb=4096",
        "-print_final_stats=1",
        "-keep_seed=1",  # also where a library in another language hides what a seed reaches
        *more,
        str(corpus),
        str(SEEDS / arguments.target),
    ]
    # libFuzzer ends its process at once, so another process removes its files in memory.
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        code = f"import sys; sys.path[:0] = {sys.path[:2]}; import run; run.fuzz(*sys.argv[1:])"
        command = [sys.executable, "-c", code, arguments.target, *options]
        return subprocess.call(command, env={**os.environ, "TMPDIR": folder})


def fuzz(target: str, *options: str) -> None:
    """The campaign itself; it does not return."""
    import atheris

    with atheris.instrument_imports(include=INSTRUMENTED):
        from targets import TARGETS

        # Late imports are instrumented too, and objects that are made once take longer than
        # libFuzzer waits for an input.
        TARGETS[target](b"")
    atheris.Setup(["fuzz", *options], TARGETS[target], enable_python_coverage=True)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
