"""What a service counts, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

LINES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """Counts of one service since its start."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter(
            "nmtdeep_requests", "Requests to translate, by status.", ["status"], registry=registry
        )
        self.lines = Counter("nmtdeep_lines", "Lines translated.", registry=registry)
        self.open = Gauge("nmtdeep_open_requests", "Requests in progress.", registry=registry)
        self.waiting = Gauge("nmtdeep_waiting_lines", "Waiting lines.", registry=registry)
        self.latency = Histogram(
            "nmtdeep_request_seconds",
            "Seconds from a request's header to its answer.",
            registry=registry,
            buckets=SECONDS,
        )
        self.batch_lines = Histogram(
            "nmtdeep_batch_lines", "Lines of a batch.", registry=registry, buckets=LINES
        )
        self.batch_requests = Histogram(
            "nmtdeep_batch_requests", "Requests of a batch.", registry=registry, buckets=LINES
        )
        self.batch_seconds = Histogram(
            "nmtdeep_batch_seconds", "Seconds of a batch.", registry=registry, buckets=SECONDS
        )

    def answered(self, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self.requests.labels(str(status)).inc()
        self.latency.observe(seconds)

    def translated(self, *, requests: int, lines: int, seconds: float) -> None:
        """Count a batch that went through the model."""
        self.lines.inc(lines)
        self.batch_lines.observe(lines)
        self.batch_requests.observe(requests)
        self.batch_seconds.observe(seconds)
