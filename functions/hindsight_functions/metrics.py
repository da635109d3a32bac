"""What a process counts, in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily
from prometheus_client.registry import Collector

from hindsight_core.cache.vectors import VectorCache
from hindsight_core.models import Decision
from hindsight_core.responses import SweepReport

CONTENT_TYPE = "text/plain; version=0.0.4"


class Metrics:
    """Requests, their durations, what became of writes, and what searches found; one registry an app."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "hindsight_requests", "Requests answered.", ["method", "route", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "hindsight_request_seconds", "Seconds until the answer began.", ["method", "route"], registry=self._registry
        )
        self._decisions = Counter(
            "hindsight_decisions", "What became of the candidates of writes.", ["decision"], registry=self._registry
        )
        self._searches = Counter(
            "hindsight_searches", "Searches, by whether they found anything.", ["found"], registry=self._registry
        )
        self._swept = Counter(
            "hindsight_swept", "Memories changed by sweeps.", ["policy", "action"], registry=self._registry
        )
        self._sweep_seconds = Histogram(
            "hindsight_sweep_seconds", "Seconds a policy of a sweep took.", ["policy"], registry=self._registry
        )
        self._degraded = Counter(
            "hindsight_degraded",
            "Answers that had to do without a part, such as the embedder.",
            registry=self._registry,
        )

        self.vectors: VectorCache | None = None
        self._registry.register(_Vectors(self))

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def decided(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            self._decisions.labels(decision.decision).inc()

    def searched(self, *, found: bool, degraded: bool) -> None:
        self._searches.labels("yes" if found else "no").inc()
        if degraded:
            self._degraded.inc()

    def swept(self, report: SweepReport) -> None:
        for done in report.policies:
            self._sweep_seconds.labels(done.policy).observe(done.took_ms / 1000)
            for action, memories in () if report.dry_run else done.actions.items():
                self._swept.labels(done.policy, action).inc(memories)

    def text(self) -> bytes:
        """All of it, ready to be scraped."""
        return generate_latest(self._registry)


class _Vectors(Collector):
    """How often the vector of a text was there already, of the service that is served by now."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[CounterMetricFamily]:
        found = CounterMetricFamily("hindsight_vectors", "Vectors asked of the cache.", labels=["found"])
        vectors = self._metrics.vectors
        found.add_metric(["yes"], 0 if vectors is None else vectors.hits)
        found.add_metric(["no"], 0 if vectors is None else vectors.misses)
        yield found
