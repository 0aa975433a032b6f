"""OpenTelemetry: metrics and logs to an OTLP collector over HTTP.

Where, with which headers and how often is said by OpenTelemetry's own variables (``OTEL_EXPORTER_OTLP_ENDPOINT``,
``OTEL_METRIC_EXPORT_INTERVAL``); without them it is the collector of this machine. A metric carries the newest value at
each export. Symptoms, actions and incidents are log records with their step, and an incident's record has the path of
its bundle. OTLP has no histogram whose bins are shares, so three quantiles of the power of two become metrics.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, final

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from steadytrain.core.incident import Action, Incident
from steadytrain.core.model import Severity, Symptom
from steadytrain.exporters.exporter import (
    SEVERITY_LEVELS,
    Exporter,
    ExporterError,
    Histogram,
    Row,
    Run,
    Tool,
    action_text,
    incident_text,
)
from steadytrain.exporters.series_names import histogram_name, series_name
from steadytrain.report.wording import clean

INTERVAL_VARIABLE = "OTEL_METRIC_EXPORT_INTERVAL"
INTERVAL_MS_DEFAULT = 10_000
EXPORT_S_MAX = 5.0
"""For one export with its retries: a collector that does not answer is reported while the run is still there."""

METRICS_MAX = 500
NONFINITE_MAX = 2000
LOGGED_MAX = 50
QUANTILES = (0.05, 0.5, 0.95)
SCOPE = "steadytrain"
_SEVERITIES: Mapping[Severity, SeverityNumber] = {
    "note": SeverityNumber.INFO,
    "warning": SeverityNumber.WARN,
    "critical": SeverityNumber.ERROR,
}


@final
class Otel(Tool):
    """OpenTelemetry: metrics and logs to an OTLP collector over HTTP."""

    requires: ClassVar[str] = "opentelemetry.exporter.otlp.proto.http"
    install: ClassVar[str] = "steadytrain[otel]"
    addresses: ClassVar[Mapping[str, str]] = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http-url",
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http-url",
        "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http-url",
        "OTEL_METRIC_EXPORT_INTERVAL": "milliseconds",
    }

    def begin(self) -> Exporter:
        return OtelExporter()


@final
class _FewLines(logging.StreamHandler):  # type: ignore[type-arg]
    """The library logs every failed export: of a long run without a collector the first lines are enough."""

    def __init__(self) -> None:
        super().__init__()
        self._left = LOGGED_MAX

    def filter(self, record: logging.LogRecord) -> bool:
        self._left -= 1
        return self._left >= 0


@final
class _Metrics(OTLPMetricExporter):  # type: ignore[misc]
    """Remembers that an export failed; the library itself only logs it."""

    failed = False

    def export(self, *arguments: Any, **options: Any) -> Any:
        result = super().export(*arguments, **options)
        self.failed = self.failed or result.name != "SUCCESS"
        return result


@final
class OtelExporter(Exporter):
    """Gauges in a meter, and records in a logger, both of one resource: the run."""

    def __init__(self) -> None:
        self._gauges: dict[str, Any] = {}
        self._told = False
        self._nonfinite: set[tuple[Any, ...]] = set()

    def open(self, run: Run) -> None:
        library = logging.getLogger("opentelemetry")
        library.handlers[:], library.propagate = [_FewLines()], False
        resource = Resource.create(
            {
                "service.name": os.environ.get("OTEL_SERVICE_NAME", SCOPE),
                "service.instance.id": run.name,
                "steadytrain.run": run.name,
                "steadytrain.run_folder": run.folder,
            }
        )
        self._sender = _Metrics(timeout=EXPORT_S_MAX)
        interval_ms = float(os.environ.get(INTERVAL_VARIABLE, INTERVAL_MS_DEFAULT))
        reader = PeriodicExportingMetricReader(self._sender, export_interval_millis=interval_ms)
        self._meters = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        self._meter = self._meters.get_meter(SCOPE)
        self._loggers = LoggerProvider(resource=resource, shutdown_on_exit=False)
        self._loggers.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter(timeout=EXPORT_S_MAX)))
        self._logger = self._loggers.get_logger(SCOPE)

    def scalars(self, row: Row) -> None:
        for name, value in row.values.items():
            series = series_name(name)
            self._set(series.metric, value, series.labels)
        if not row.rare:
            self._set("step", float(row.step), {})

    def histogram(self, histogram: Histogram) -> None:
        series = histogram_name(histogram.name)
        for share, exponent in histogram.quantiles(QUANTILES).items():
            self._set(f"{series.metric}.log2", exponent, {**series.labels, "quantile": f"{share:g}"})
        if histogram.positive_share is not None:
            self._set(f"{series.metric}.positive_share", histogram.positive_share, series.labels)

    def symptom(self, symptom: Symptom) -> None:
        labels = {"symptom": symptom.name, "stream": symptom.stream}
        self._set("symptom.severity", float(SEVERITY_LEVELS[symptom.severity]), labels)
        self._say("symptom", symptom.severity, clean(symptom.message), {**labels, "step": symptom.first_step})

    def action(self, action: Action) -> None:
        labels = {"step": action.step, "what": action.what, "intervention": action.intervention}
        self._say("action", "warning" if action.touched else "note", action_text(action), labels)

    def incident(self, path: Path, incident: Incident) -> None:
        labels = {"step": incident.step, "stream": incident.stream, "path": str(path)}
        self._say("incident", "critical", incident_text(path, incident), labels)

    def failed(self, why: str) -> None:
        self._say("failure", "critical", clean(why), {})

    def flush(self) -> None:
        """The SDK sends metrics and logs by itself. This reports that they did not arrive."""
        if self._sender.failed and not self._told:
            self._told = True
            raise ExporterError("the collector did not take the metrics; is one listening at the endpoint?")

    def close(self, ended: str) -> None:
        self._say("end", "note" if ended == "finished" else "warning", f"the run ended: {ended}", {"ended": ended})
        self._loggers.shutdown()
        self._meters.shutdown()
        self.flush()

    def _set(self, metric: str, value: float, labels: Mapping[str, str]) -> None:
        """Set a gauge. OpenTelemetry takes no NaN and no Inf: ``steadytrain.nonfinite`` is 1 while a value is one."""
        key = (metric, *sorted(labels.items()))
        if math.isfinite(value):
            self._gauge(metric, value, labels)
            if key in self._nonfinite:
                self._nonfinite.discard(key)
                self._gauge("nonfinite", 0.0, {**labels, "metric": metric})
        elif key not in self._nonfinite and len(self._nonfinite) < NONFINITE_MAX:
            self._nonfinite.add(key)
            self._gauge("nonfinite", 1.0, {**labels, "metric": metric})

    def _gauge(self, metric: str, value: float, labels: Mapping[str, str]) -> None:
        name = f"{SCOPE}.{metric}"
        if name not in self._gauges:
            if len(self._gauges) >= METRICS_MAX:
                return
            self._gauges[name] = self._meter.create_gauge(name)
        self._gauges[name].set(value, dict(labels))

    def _say(self, event: str, severity: Severity, text: str, labels: Mapping[str, Any]) -> None:
        self._logger.emit(
            LogRecord(
                timestamp=time.time_ns(),
                severity_text=severity,
                severity_number=_SEVERITIES[severity],
                body=text,
                attributes={"event": event, **labels},
            )
        )
