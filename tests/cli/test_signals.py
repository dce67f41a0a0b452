"""Signals that arrive where Python drops exceptions."""

import subprocess
import sys

import pytest

CODE = """
import sys, time
from nmtdeep.cli.start import reraise_signal

class Dropped:
    def __del__(self):
        raise {error}

sys.unraisablehook = reraise_signal
Dropped()
time.sleep({seconds})
"""


@pytest.mark.parametrize(
    ("error", "seconds", "code"), [("KeyboardInterrupt", 60, -2), ("ValueError", 0, 0)]
)
def test_ctrl_c_in_a_destructor_is_not_lost(error, seconds, code):
    command = [sys.executable, "-c", CODE.format(error=error, seconds=seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert error in done.stderr
