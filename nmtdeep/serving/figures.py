"""What a service counts, as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

LINES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Figures:
    """Counts of one service, from its start on."""

    form = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._requests = Counter(
            "nmtdeep_requests", "Requests to translate, by status.", ["status"], registry=registry
        )
        self._lines = Counter("nmtdeep_lines", "Lines translated.", registry=registry)
        self.open = Gauge("nmtdeep_open_requests", "Requests being answered.", registry=registry)
        self._waiting = Gauge("nmtdeep_waiting_lines", "Lines that wait.", registry=registry)
        self._latency = Histogram(
            "nmtdeep_request_seconds",
            "From a request's header to its answer.",
            registry=registry,
            buckets=SECONDS,
        )
        self._batch_lines = Histogram(
            "nmtdeep_batch_lines", "Lines translated together.", registry=registry, buckets=LINES
        )
        self._batch_requests = Histogram(
            "nmtdeep_batch_requests", "Requests that shared them.", registry=registry, buckets=LINES
        )
        self._batch_seconds = Histogram(
            "nmtdeep_batch_seconds", "What that took.", registry=registry, buckets=SECONDS
        )

    def watch(self, waiting: Callable[[], int]) -> None:
        """Ask for the lines that wait when somebody wants to know."""
        self._waiting.set_function(waiting)

    def answered(self, status: int, seconds: float) -> None:
        """A request has its answer."""
        self._requests.labels(str(status)).inc()
        self._latency.observe(seconds)

    def translated(self, *, requests: int, lines: int, seconds: float) -> None:
        """Lines of so many requests went through the model together."""
        self._lines.inc(lines)
        self._batch_lines.observe(lines)
        self._batch_requests.observe(requests)
        self._batch_seconds.observe(seconds)

    def text(self) -> bytes:
        """All of it, in Prometheus' text format."""
        return generate_latest(self._registry)
