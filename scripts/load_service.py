"""Load a service: many clients at once, and whether every line came back, in order.

    nmtdeep serve -m RUN --port 8000
    python scripts/load_service.py --text FILE [--url http://127.0.0.1:8000] [--clients 32]
        [--seconds 60] [--lines 1 8]

Each client sends requests one after the other over a connection of its own, each of a random number
of the lines of FILE. A request that the service has no room for (429, 503) is sent again after the
time that the service asks for. Printed are lines and requests per second, latencies, refusals, and
how many requests were lost: no answer, another status than 200, or another number of translations
than lines. Equal lines must have equal translations: how many differ is counted, for a translation
may change by a rounding with the lines that share its batch. Exit code 1 if a request was lost.
"""

import argparse
import http.client
import json
import random
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from nmtdeep.text.lines import read_lines

REFUSED = (429, 503)
SECONDS = 300


@dataclass
class Tally:
    """Counts of all clients; each client holds the lock to change them."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    latencies: list[float] = field(default_factory=list)
    lines: int = 0
    refused: int = 0
    lost: list[str] = field(default_factory=list)
    known: dict[str, str] = field(default_factory=dict)
    differing: int = 0

    def answered(self, lines: list[str], translations: list[str], seconds: float) -> None:
        """Count an answer, or a loss where lines are missing."""
        with self.lock:
            if len(translations) != len(lines):
                self.lost.append(f"{len(lines)} lines in, {len(translations)} out")
                return
            self.latencies.append(seconds)
            self.lines += len(lines)
            for line, translation in zip(lines, translations, strict=True):
                self.differing += self.known.setdefault(line, translation) != translation


def ask(connection: http.client.HTTPConnection, lines: list[str], tally: Tally) -> None:
    """One request, until it is answered or lost."""
    body, began = json.dumps({"lines": lines}), time.perf_counter()
    while True:
        try:
            connection.request("POST", "/translate", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            reply = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            connection.close()
            with tally.lock:
                tally.lost.append(repr(error))
            return
        if answer.status not in REFUSED:
            break
        with tally.lock:
            tally.refused += 1
        time.sleep(float(answer.headers["Retry-After"]))
    if answer.status != 200:
        with tally.lock:
            tally.lost.append(f"{answer.status} {reply}")
        return
    translations = [each["text"] for each in reply["translations"]]
    tally.answered(lines, translations, time.perf_counter() - began)


def work(place: str, text: list[str], sizes: list[int], until: float, seed: int, to: Tally) -> None:
    """One client: requests, one after the other, until the time is over."""
    chance = random.Random(seed)
    connection = http.client.HTTPConnection(place, timeout=SECONDS)
    while time.perf_counter() < until:
        ask(connection, chance.choices(text, k=chance.randint(*sizes)), to)
    connection.close()


def report(tally: Tally, seconds: float) -> None:
    """Rates, latencies, losses."""
    count = len(tally.latencies)
    print(f"{count:,} requests, {tally.lines:,} lines in {seconds:.1f} s")
    print(f"{count / seconds:,.1f} requests/s, {tally.lines / seconds:,.1f} lines/s")
    if count:
        ranked = sorted(tally.latencies)
        shares = {"median": 0.5, "95 %": 0.95, "99 %": 0.99, "longest": 1.0}
        figures = (
            f"{name} {ranked[int(share * (count - 1))]:.3f} s" for name, share in shares.items()
        )
        print(f"latency: {', '.join(figures)}")
    print(f"{tally.refused:,} times refused for lack of room, and answered later")
    print(f"{tally.differing:,} lines with another translation than the same line before")
    print(f"{len(tally.lost):,} requests lost")
    for reason in tally.lost[:10]:
        print(f"  {reason}")


def main() -> int:
    """Read the command line, start the clients, wait, report."""
    parser = argparse.ArgumentParser(description="Many clients of one service")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--text", type=Path, required=True, help="source lines, raw")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--lines", type=int, nargs=2, default=[1, 8], metavar=("LEAST", "MOST"))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    place, text, tally = urlsplit(options.url).netloc, list(read_lines(options.text)), Tally()
    began = time.perf_counter()
    shared = (place, text, options.lines, began + options.seconds)
    clients = [
        threading.Thread(target=work, args=(*shared, 1000 * options.seed + number, tally))
        for number in range(options.clients)
    ]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    report(tally, time.perf_counter() - began)
    return int(bool(tally.lost) or not tally.latencies)


if __name__ == "__main__":
    sys.exit(main())
