"""OTLP metrics and logs, taken by a collector of the test's own and read with OpenTelemetry's own messages."""

from __future__ import annotations

import gzip
import http.server
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from receivers import dead_port

from builders import incident, records, symptom
from feeding import histogram_reading, machine_reading
from steadytrain.core.incident import Action
from steadytrain.exporters import sent_values
from steadytrain.exporters.exporter import ExporterError, Row, Run
from steadytrain.exporters.tools import otel
from steadytrain.exporters.tools.otel import OtelExporter

KINDS = {"/v1/metrics": ExportMetricsServiceRequest, "/v1/logs": ExportLogsServiceRequest}


@contextmanager
def collector() -> Iterator[tuple[int, list[Any]]]:
    got: list[Any] = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            got.append(KINDS[self.path].FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server.server_port, got
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def labels(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


@pytest.fixture(autouse=True)
def _no_endpoint_of_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_SDK_DISABLED", raising=False)
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "600000")


def test_a_collector_gets_the_newest_values_and_what_happened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otel, "EXPORT_S_MAX", 60.0)
    with collector() as (port, got):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
        exporter = OtelExporter()
        exporter.open(Run("run", str(tmp_path)))
        for record in records(3):
            exporter.scalars(sent_values.signals("main", record))
        exporter.scalars(Row(3, 1.0, {"gradient_norm": math.nan}))
        exporter.scalars(sent_values.scalars("main", 3, 1.0, machine_reading()))
        for histogram in sent_values.histograms("main", 3, 1.0, histogram_reading()):
            exporter.histogram(histogram)
        exporter.symptom(symptom(3))
        exporter.action(Action(3, "stop", "refused-update", "the loss is NaN"))
        exporter.incident(tmp_path / "step-000003", incident(3))
        exporter.flush()
        exporter.close("stopped")
    resources = [one for request in got for one in (*getattr(request, "resource_metrics", ()),)]
    assert labels(resources[0].resource.attributes)["steadytrain.run"] == "run"
    metrics = {one.name: one for resource in resources for scope in resource.scope_metrics for one in scope.metrics}
    points = {
        (name, frozenset(labels(point.attributes).items())): point.as_double
        for name, metric in metrics.items()
        for point in metric.gauge.data_points
    }
    assert points["steadytrain.loss", frozenset({("stream", "main")})] == records(3)[-1].scalars["loss"]
    assert points["steadytrain.step", frozenset()] == 3
    assert points["steadytrain.nonfinite", frozenset({("stream", "main"), ("metric", "gradient_norm")})] == 1.0
    device = frozenset({("stream", "main"), ("name", "cuda:0")})
    assert points["steadytrain.machine_temperature_c", device] == 61.0
    middle = frozenset({("stream", "main"), ("name", "head.weight"), ("quantile", "0.5")})
    assert points["steadytrain.gradients.log2", middle] == -1.5
    logs = [one for request in got for resource in getattr(request, "resource_logs", ()) for one in _records(resource)]
    said = {labels(one.attributes)["event"]: one for one in logs}
    assert list(said) == ["symptom", "action", "incident", "end"]
    assert said["symptom"].severity_text == "critical"
    assert labels(said["symptom"].attributes)["step"] == 3
    assert said["action"].body.string_value == "step 3: refused-update: the loss is NaN"
    assert "aten.log.default" in said["incident"].body.string_value
    assert labels(said["incident"].attributes)["path"] == str(tmp_path / "step-000003")
    assert labels(said["end"].attributes)["ended"] == "stopped"


def _records(resource: Any) -> list[Any]:
    return [one for scope in resource.scope_logs for one in scope.log_records]


@pytest.mark.long
def test_a_collector_that_is_not_there_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otel, "EXPORT_S_MAX", 0.5)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{dead_port()}")
    exporter = OtelExporter()
    exporter.open(Run("run", str(tmp_path)))
    exporter.scalars(sent_values.signals("main", records(1)[0]))
    with pytest.raises(ExporterError, match="the collector did not take the metrics"):
        exporter.close("finished")
    exporter.flush()
