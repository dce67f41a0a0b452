"""Number of processes of `nmtdeep translate`."""

import pytest

from nmtdeep.config.decoding import decoding_options
from nmtdeep.decoding.streams import worker_processes
from nmtdeep.decoding.translator import BUFFER
from nmtdeep.errors import UserError


@pytest.mark.parametrize(
    ("processes", "threads", "lines", "expected"),
    [
        (None, None, BUFFER + 1, 3),
        (None, None, BUFFER, 1),
        (None, None, 0, 1),  # a pipe
        (None, 2, BUFFER + 1, 1),
        (2, None, 0, 2),
        (1, None, BUFFER + 1, 1),
    ],
)
def test_a_long_file_has_one_process_per_core(processes, threads, lines, expected):
    options = decoding_options({"processes": processes, "threads": threads, "device": "cpu"})
    assert worker_processes(options, lines, cores=3) == expected


def test_threads_and_several_processes_exclude_each_other():
    with pytest.raises(UserError, match="leave out threads"):
        decoding_options({"processes": 2, "threads": 1})
