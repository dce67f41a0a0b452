"""`nmtdeep serve`: a real process answers as `translate` does, and ends when it has answered."""

import json
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from tools.serve.stand_ins import ask, get, until

from commands.runs import UNUSUAL, translated

SEARCHES = {
    "defaults": [],
    "options": ["--beam", "3", "--lenpen", "1.5", "--lenpen-form", "gnmt", "--n-best", "2",
                "--max-source-tokens", "9", "--long-lines", "truncate", "--output-is", "tokenized"],
}  # fmt: skip
ENDS = {
    "defaults": (signal.SIGTERM, 143, b""),
    "options": (signal.SIGINT, 130, b"nmtdeep serve: interrupted by Ctrl-C\n"),
}


@pytest.fixture(params=SEARCHES)
def served(request, whole):
    """A name of `SEARCHES`, the process of such a service, its port."""
    command = ["serve", "-m", str(whole), "--port", "0", *SEARCHES[request.param]]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-m", "nmtdeep", *command], stdout=pipe, stderr=pipe
    ) as process:
        try:
            assert process.stdout
            said = process.stdout.readline().decode()
            assert said.startswith("http://127.0.0.1:") and said.endswith(f": {whole}\n")
            yield request.param, process, int(said.split(":")[2])
        finally:
            process.kill()


def test_answers_equal_the_command_and_a_signal_waits_for_all_of_them(nmtdeep, whole, served):
    name, process, port = served
    end, code, message = ENDS[name]
    text = (nmtdeep.folder / "test.en").read_text(encoding="utf-8")
    lines = [*text.splitlines(), *UNUSUAL]
    expected = translated(nmtdeep, lines, "-m", whole, *SEARCHES[name])
    assert found(port, lines) == expected
    assert [found(port, [line])[0] for line in UNUSUAL] == expected[-3:]

    before = came(port)
    with ThreadPoolExecutor(8) as clients:
        requests = [clients.submit(found, port, lines[first:]) for first in range(8)]
        until(lambda: came(port) == before + 8)
        process.send_signal(end)
        assert [request.result(60) for request in requests] == [
            expected[first:] for first in range(8)
        ]
    assert process.wait(30) == code
    assert (process.stdout.read(), process.stderr.read()) == (b"", message)


def came(port: int) -> float:
    """Requests that were answered, or are being answered."""
    metrics = get(port, "/metrics").body
    counts = re.findall(r"^nmtdeep_(?:open_requests|requests_total\S*) (.*)", metrics, re.M)
    return sum(map(float, counts))


def found(port: int, lines: list[str]) -> list[list[str]]:
    """The texts that the service returns for each line."""
    answer = ask(port, json.dumps({"lines": lines}).encode())
    assert answer.status == 200, answer
    return [
        [translation["text"], *(candidate["text"] for candidate in translation["alternatives"])]
        for translation in answer.body["translations"]
    ]
