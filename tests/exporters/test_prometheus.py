"""A scrape of the page, read by the parser of Prometheus' own client."""

from __future__ import annotations

import math
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client")

from prometheus_client.parser import text_string_to_metric_families

from builders import TENSORS, incident, records, symptom
from feeding import histogram_reading, machine_reading
from steadytrain.core.incident import Action
from steadytrain.exporters import sent_values
from steadytrain.exporters.exporter import ExporterGoneError, Run
from steadytrain.exporters.series_names import SeriesName, histogram_name, series_name
from steadytrain.exporters.tools.prometheus import ADDRESS_FILE, PrometheusExporter

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def opened(folder: Path, address: str = "127.0.0.1:0") -> PrometheusExporter:
    exporter = PrometheusExporter(address)
    exporter.open(Run("run", str(folder)))
    return exporter


def scraped(folder: Path) -> Samples:
    url = (folder / ADDRESS_FILE).read_text().strip()
    assert url.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(url, timeout=60) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}


def value(samples: Samples, metric: str, /, **labels: str) -> float:
    return samples[f"steadytrain_{metric}", frozenset({"run": "run", **labels}.items())]


def test_a_scrape_has_the_newest_value_of_each_series(tmp_path: Path) -> None:
    exporter = opened(tmp_path)
    for record in records(3, nan_at=3):
        exporter.scalars(sent_values.signals("main", record))
        exporter.scalars(sent_values.signals("optimizer-2", record))
    exporter.scalars(sent_values.scalars("main", 3, 1.0, sent_values.gradient_reading(record, TENSORS)))
    exporter.scalars(sent_values.scalars("main", 3, 1.0, machine_reading()))
    for histogram in sent_values.histograms("main", 3, 1.0, histogram_reading()):
        exporter.histogram(histogram)
    exporter.symptom(symptom(3))
    exporter.incident(tmp_path / "step-000003", incident(3))
    for _ in range(2):
        exporter.action(Action(3, "stop", "refused-update", "the loss is NaN"))
    found = scraped(tmp_path)
    exporter.close("finished")
    assert value(found, "step") == 3
    assert math.isnan(value(found, "loss", stream="main"))
    assert value(found, "learning_rate", stream="optimizer-2") == pytest.approx(3e-4)
    assert value(found, "gradients_norm", stream="main", name="model.embed.weight") == 0.5
    assert value(found, "machine_temperature_c", stream="main", name="cuda:0") == 61.0
    assert value(found, "gradients_log2", stream="main", name="head.weight", quantile="0.5") == -1.5
    assert value(found, "symptom_severity", stream="main", symptom="nonfinite-gradient") == 3
    assert value(found, "incident_step", incident="step-000003") == 3
    assert value(found, "actions_total", what="refused-update", intervention="") == 2
    assert value(found, "run_info", folder=str(tmp_path)) == 1


def test_a_port_that_is_taken_and_an_address_that_is_none_are_one_line(tmp_path: Path) -> None:
    first = opened(tmp_path)
    port = (tmp_path / ADDRESS_FILE).read_text().strip().removesuffix("/metrics").rpartition(":")[2]
    with pytest.raises(ExporterGoneError, match=r"choose another with STEADYTRAIN_PROMETHEUS=HOST:PORT"):
        opened(tmp_path, f"127.0.0.1:{port}")
    with pytest.raises(ExporterGoneError, match=r"'nine': not HOST:PORT, such as 127\.0\.0\.1:9477"):
        opened(tmp_path, "nine")
    first.close("finished")


def test_names_are_taken_apart() -> None:
    assert series_name("loss") == SeriesName("loss", "main", "")
    assert series_name("optimizer-2/loss") == SeriesName("loss", "optimizer-2", "")
    assert series_name("tensors/a.b/update_ratio") == SeriesName("tensors_update_ratio", "main", "a.b")
    assert series_name("tensors/update_ratio_largest") == SeriesName("tensors_update_ratio_largest", "main", "")
    assert series_name("optimizer-2/machine/disk:/data/free") == SeriesName("machine_free", "optimizer-2", "disk:/data")
    assert histogram_name("optimizer-2/weights/a.b") == SeriesName("weights", "optimizer-2", "a.b")
