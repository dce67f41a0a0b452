"""Drive one reader with a coverage-guided fuzzer, from the kept seeds on.

    python fuzz/run.py recipe --runs 1000000

needs the extra `fuzz` (atheris, for Linux and Python up to the version that it supports). What has
new coverage is gathered in --corpus; an input that breaks a promise ends the run and is written
beside it as crash-*: `python fuzz/run.py recipe --show FILE` plays it again, without atheris.
Every other option of libFuzzer can follow behind `--`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "fuzz")]
SEEDS = ROOT / "fuzz" / "seeds"
# Compiled or slow to start, or of no interest: what is instrumented is slower.
INSTRUMENTED = ["nmtdeep", "yaml", "subword_nmt", "sacremoses"]


def main() -> None:
    """Read the arguments and run the campaign; it does not return."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("target", help="a name in fuzz/targets.py, TARGETS")
    parser.add_argument("--runs", type=int, default=1_000_000, help="executions")
    parser.add_argument("--seed", type=int, default=1, help="of the mutations")
    parser.add_argument("--longest", type=int, default=2048, help="longest input, in bytes")
    parser.add_argument("--corpus", type=Path, help="default: ./fuzz-corpus/TARGET")
    parser.add_argument("--show", type=Path, help="run this input alone, without atheris")
    parser.add_argument("more", nargs="*", help="options of libFuzzer, such as -max_total_time=60")
    given = parser.parse_args()
    if given.show:
        from targets import TARGETS

        TARGETS[given.target](given.show.read_bytes())
        return
    import atheris

    with atheris.instrument_imports(include=INSTRUMENTED):
        from targets import TARGETS
    corpus = given.corpus or Path("fuzz-corpus") / given.target
    corpus.mkdir(parents=True, exist_ok=True)
    options = [
        f"-runs={given.runs}",
        f"-seed={given.seed}",
        f"-max_len={given.longest}",
        f"-artifact_prefix={corpus.parent}/{given.target}-",
        "-timeout=30",
        "-rss_limit_mb=4096",
        "-print_final_stats=1",
        *given.more,
    ]
    atheris.Setup(
        [sys.argv[0], *options, str(corpus), str(SEEDS / given.target)],
        TARGETS[given.target],
        enable_python_coverage=True,
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
