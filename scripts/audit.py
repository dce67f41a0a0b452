"""Ask whether a locked version has a known vulnerability, by pip-audit.

    python scripts/audit.py [--service URL] [LOCK ...]

Looks up what the locks under requirements/ name, and installs nothing. Exit code 0: nothing is
known against any of them, or no service answers (no network, or a package index that does not say
what is vulnerable), which is said; 1: something is known, or a lock cannot be read.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# torch-cpu.txt names a build of the torch of torch.txt, under a version that no service knows.
LOCKS = [ROOT / "requirements" / f"{name}.txt" for name in ("development", "torch", "benchmark")]
SECONDS = 10
UNREACHABLE = re.compile(r"could not connect|connection|timed? ?out|max retries|proxy", re.I)


def ask(locks: list[Path], service: str | None) -> subprocess.CompletedProcess[str]:
    """Run pip-audit; its answer is JSON."""
    command = [
        sys.executable, "-m", "pip_audit", "--require-hashes", "--disable-pip",
        "--progress-spinner", "off", "--format", "json", "--timeout", str(SECONDS),
    ]  # fmt: skip
    if service:
        command += ["--vulnerability-service", "osv", "--osv-url", service]
    command += [word for lock in locks for word in ("--requirement", str(lock))]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def main() -> None:
    """Ask, and say what is known in one line each."""
    parser = argparse.ArgumentParser(description="Known vulnerabilities of what is locked")
    parser.add_argument("--service", metavar="URL", help="that speaks OSV [default: PyPI]")
    parser.add_argument("locks", nargs="*", type=Path, metavar="LOCK", help="instead of all")
    asked = parser.parse_args()
    done = ask(asked.locks or LOCKS, asked.service)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except ValueError:
        reason = done.stderr.strip().rpartition("\n")[2]
        if UNREACHABLE.search(reason):
            print(f"audit skipped, no way to the vulnerability service: {reason.partition(':')[0]}")
            return
        sys.exit(f"audit failed: {done.stderr}")
    answered = [one for one in packages if "skip_reason" not in one]
    if not answered:
        print(f"audit skipped, the vulnerability service knows none of {len(packages)} packages")
        return
    known = [
        f"{one['name']} {one['version']}: {found['id']}, fixed in "
        f"{', '.join(found['fix_versions']) or 'no version yet'}"
        for one in answered
        for found in one["vulns"]
    ]
    unknown = [one["skip_reason"] for one in packages if "skip_reason" in one]
    print("\n".join([*known, *unknown, f"audit: {len(answered)} packages, {len(known)} findings"]))
    sys.exit(1 if known else 0)


if __name__ == "__main__":
    main()
