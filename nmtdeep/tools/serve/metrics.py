"""Counts of a service for Prometheus."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

LINES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """Counts of one service since its start."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        counter = partial(Counter, registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        self.requests = counter("nmtdeep_requests", "Requests to translate, by status.", ["status"])
        self.lines = counter("nmtdeep_lines", "Lines translated.")
        self.open = gauge("nmtdeep_open_requests", "Requests in progress.")
        self.waiting = gauge("nmtdeep_waiting_lines", "Waiting lines.")
        text = "Seconds from a request's header to its answer."
        self.latency = histogram("nmtdeep_request_seconds", text, buckets=SECONDS)
        self.batch_lines = histogram("nmtdeep_batch_lines", "Lines of a batch.", buckets=LINES)
        text = "Requests of a batch."
        self.batch_requests = histogram("nmtdeep_batch_requests", text, buckets=LINES)
        text = "Seconds of a batch."
        self.batch_seconds = histogram("nmtdeep_batch_seconds", text, buckets=SECONDS)
