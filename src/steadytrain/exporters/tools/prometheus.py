"""Prometheus: a page on this machine that a server scrapes, with the newest value of each series.

Names become metrics with labels: ``tensors/head.weight/update_ratio`` is ``steadytrain_tensors_update_ratio`` with the
label ``name``. A scrape has no steps: ``steadytrain_step`` says which one was the last. Prometheus draws no histogram
whose bins are shares, so three quantiles of the power of two become metrics. The page ends with the run.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, final

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from steadytrain.core.incident import Action, Incident
from steadytrain.core.model import Symptom
from steadytrain.core.own_errors import own
from steadytrain.exporters.addresses import host_and_port
from steadytrain.exporters.exporter import SEVERITY_LEVELS, Exporter, ExporterGoneError, Histogram, Row, Run, Tool
from steadytrain.exporters.series_names import histogram_name, series_name
from steadytrain.storage.documents import write_text

ADDRESS_VARIABLE = "STEADYTRAIN_PROMETHEUS"
ADDRESS_DEFAULT = "127.0.0.1:9477"
"""Loopback: who wants the page to be read from elsewhere says so. No exporter is registered for this port."""

ADDRESS_FILE = "prometheus-address.txt"
SERIES_MAX = 20_000
PREFIX = "steadytrain_"
QUANTILES = (0.05, 0.5, 0.95)
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")

Labels = tuple[tuple[str, str], ...]


@final
class Prometheus(Tool):
    """Prometheus: a page on this machine that a server scrapes, with the newest value of each series."""

    requires: ClassVar[str] = "prometheus_client"
    install: ClassVar[str] = "steadytrain[prometheus]"
    addresses: ClassVar[Mapping[str, str]] = {"STEADYTRAIN_PROMETHEUS": "host-port"}

    def begin(self) -> Exporter:
        return PrometheusExporter(os.environ.get(ADDRESS_VARIABLE, ADDRESS_DEFAULT))


@final
class PrometheusExporter(Exporter):
    """The page at ``address`` (``HOST:PORT``; port 0 takes a free one). The run folder has a file with its address."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._gauges: dict[str, dict[Labels, float]] = {}
        self._counters: dict[str, dict[Labels, float]] = {}
        self._series = 0
        self._run: Labels = ()
        self._server: Any = None

    def open(self, run: Run) -> None:
        self._run = (("run", run.name),)
        self._set("run_info", {"folder": run.folder}, 1.0)
        place = host_and_port(self._address)
        if place is None:
            raise ExporterGoneError(f"{ADDRESS_VARIABLE}={self._address!r}: not HOST:PORT, such as {ADDRESS_DEFAULT}")
        host, port = place
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        try:
            self._server, _ = start_http_server(port, addr=host, registry=registry)
        except own(OSError) as error:
            why = f"{self._address}: {error.strerror or error}"
            raise ExporterGoneError(f"{why}; choose another with {ADDRESS_VARIABLE}=HOST:PORT") from None
        shown = f"[{host}]" if ":" in host else host
        url = f"http://{shown}:{self._server.server_port}/metrics"
        write_text(Path(run.folder) / ADDRESS_FILE, f"{url}\n")

    def collect(self) -> Iterator[Any]:
        """What a scrape gets. Called by the server's threads."""
        with self._lock:
            kinds = [(GaugeMetricFamily, _copied(self._gauges)), (CounterMetricFamily, _copied(self._counters))]
        for family, metrics in kinds:
            for metric, values in sorted(metrics.items()):
                names = sorted({name for labels in values for name, _ in labels})
                made = family(metric, f"{metric} of a run watched by steadytrain", labels=names)
                for labels, value in values.items():
                    held = dict(labels)
                    made.add_metric([held.get(name, "") for name in names], value)
                yield made

    def scalars(self, row: Row) -> None:
        for name, value in row.values.items():
            series = series_name(name)
            self._set(series.metric, series.labels, value)
        if not row.rare:
            self._set("step", {}, row.step)

    def histogram(self, histogram: Histogram) -> None:
        series = histogram_name(histogram.name)
        for share, exponent in histogram.quantiles(QUANTILES).items():
            self._set(f"{series.metric}_log2", {**series.labels, "quantile": f"{share:g}"}, exponent)
        if histogram.positive_share is not None:
            self._set(f"{series.metric}_positive_share", series.labels, histogram.positive_share)

    def symptom(self, symptom: Symptom) -> None:
        labels = {"symptom": symptom.name, "stream": symptom.stream}
        self._set("symptom_severity", labels, SEVERITY_LEVELS[symptom.severity])
        self._set("symptom_first_step", labels, symptom.first_step)

    def action(self, action: Action) -> None:
        self._count("actions", {"what": action.what, "intervention": action.intervention})

    def incident(self, path: Path, incident: Incident) -> None:
        self._set("incident_step", {"incident": path.name}, incident.step)

    def flush(self) -> None:
        """Nothing to do: a scrape reads what there is."""

    def close(self, ended: str) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def _set(self, metric: str, labels: Mapping[str, str], value: float) -> None:
        self._put(self._gauges, metric, labels, lambda _: value)

    def _count(self, metric: str, labels: Mapping[str, str]) -> None:
        self._put(self._counters, metric, labels, lambda before: before + 1)

    def _put(self, metrics: dict[str, dict[Labels, float]], metric: str, labels: Mapping[str, str], new: Any) -> None:
        key = (*self._run, *sorted(labels.items()))
        with self._lock:
            held = metrics.setdefault(f"{PREFIX}{_NOT_IN_NAMES.sub('_', metric)}", {})
            if key not in held and self._series >= SERIES_MAX:
                return
            self._series += key not in held
            held[key] = new(held.get(key, 0.0))


def _copied(metrics: Mapping[str, Mapping[Labels, float]]) -> dict[str, dict[Labels, float]]:
    return {metric: dict(values) for metric, values in metrics.items()}
