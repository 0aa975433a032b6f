"""The addresses that the environment gives to tools: a malformed one is refused before the script starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import call
from steadytrain.core.errors import UsageError
from steadytrain.exporters.addresses import _FORMS, host_and_port, refuse_bad_addresses
from steadytrain.exporters.exporter import known_tools

GOOD = [
    ("prometheus", "STEADYTRAIN_PROMETHEUS", "127.0.0.1:9477"),
    ("prometheus", "STEADYTRAIN_PROMETHEUS", "[::1]:0"),
    ("prometheus", "STEADYTRAIN_PROMETHEUS", "node-7.cluster:65535"),
    ("otel", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318"),
    ("otel", "OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector.example.org/otlp"),
    ("otel", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://[::1]:4318"),
    ("otel", "OTEL_METRIC_EXPORT_INTERVAL", "500"),
    ("mlflow", "MLFLOW_TRACKING_URI", "sqlite:///mlflow.db"),
    ("mlflow", "MLFLOW_TRACKING_URI", "postgresql+psycopg2://user:secret@host/base"),
    ("mlflow", "MLFLOW_TRACKING_URI", "databricks"),
    ("mlflow", "MLFLOW_TRACKING_URI", "file:./mlruns"),
    ("mlflow", "MLFLOW_TRACKING_URI", "./mlruns"),
    ("wandb", "WANDB_BASE_URL", "https://api.wandb.ai"),
    ("auto", "STEADYTRAIN_PROMETHEUS", "nonsense"),
    ("none", "STEADYTRAIN_PROMETHEUS", "nonsense"),
    ("otel", "STEADYTRAIN_PROMETHEUS", "nonsense"),
]
BAD = [
    ("prometheus", "STEADYTRAIN_PROMETHEUS", "9477", "not HOST:PORT"),
    ("prometheus", "STEADYTRAIN_PROMETHEUS", ":9477", "not HOST:PORT"),
    ("prometheus", "STEADYTRAIN_PROMETHEUS", "localhost:99999", "port from 0 to 65535"),
    ("prometheus", "STEADYTRAIN_PROMETHEUS", "localhost:-1", "not HOST:PORT"),
    ("prometheus", "STEADYTRAIN_PROMETHEUS", "localhost:\u00b2", "not HOST:PORT"),
    ("prometheus", "STEADYTRAIN_PROMETHEUS", "http://localhost:9477", "not HOST:PORT"),
    ("otel", "OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4318", "write http://HOST:PORT"),
    ("otel", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:99999", "a port from 1 to 65535"),
    ("otel", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:abc", "a port from 1 to 65535"),
    ("otel", "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "http://:4318", "it needs a host"),
    ("otel", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://[::1", "it needs a host"),
    ("otel", "OTEL_METRIC_EXPORT_INTERVAL", "10s", "number of milliseconds above 0"),
    ("otel", "OTEL_METRIC_EXPORT_INTERVAL", "0", "number of milliseconds above 0"),
    ("mlflow", "MLFLOW_TRACKING_URI", "localhost:5000", "write http://HOST:PORT"),
    ("mlflow", "MLFLOW_TRACKING_URI", "http:/localhost:5000", "write http://HOST:PORT"),
    ("mlflow", "MLFLOW_TRACKING_URI", "http//localhost:5000", "write http://HOST:PORT"),
    ("mlflow", "MLFLOW_TRACKING_URI", "http://localhost:500000", "a port from 1 to 65535"),
    ("wandb", "WANDB_BASE_URL", "api.wandb.ai", "write http://HOST:PORT"),
]


@pytest.mark.parametrize(("tool", "variable", "value"), GOOD)
def test_what_a_tool_can_use_is_left_alone(tool: str, variable: str, value: str) -> None:
    refuse_bad_addresses(["none" if tool == "none" else "auto", tool], {variable: value})


@pytest.mark.parametrize(("tool", "variable", "value", "why"), BAD)
def test_what_no_tool_can_use_is_refused_with_its_value(tool: str, variable: str, value: str, why: str) -> None:
    with pytest.raises(UsageError) as refused:
        refuse_bad_addresses(["auto", tool], {variable: value})
    shown = value if value.isprintable() else ascii(value)
    assert str(refused.value).startswith(f"{variable}={shown}: ")
    assert why in str(refused.value)
    assert f"--to {tool}" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "value", ["http://bob:hunter2@:4318", "bob:hunter2@host:4318", "http//bob:hunter2@host", "http://?token=hunter2"]
)
def test_a_login_in_a_malformed_address_is_not_shown(value: str) -> None:
    with pytest.raises(UsageError) as refused:
        refuse_bad_addresses(["otel"], {"OTEL_EXPORTER_OTLP_ENDPOINT": value})
    assert "hunter2" not in str(refused.value)


def test_host_and_port() -> None:
    assert host_and_port("[::1]:80") == ("::1", 80)
    assert host_and_port("a.b:0") == ("a.b", 0)
    assert host_and_port("a b:80") is None


def test_each_form_that_a_tool_names_is_known() -> None:
    forms = {form for tool in known_tools().values() for form in tool.addresses.values()}
    assert forms <= set(_FORMS)


@pytest.mark.parametrize(
    ("tool", "variable", "value"),
    [("prometheus", "STEADYTRAIN_PROMETHEUS", "localhost:99999"), ("otel", "OTEL_EXPORTER_OTLP_ENDPOINT", "h:4318")],
)
def test_a_run_ends_with_2_before_its_script_starts(
    tool: str, variable: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip({"prometheus": "prometheus_client", "otel": "opentelemetry.exporter.otlp.proto.http"}[tool])
    (tmp_path / "train.py").write_text("print('started')", encoding="utf-8")
    monkeypatch.setenv(variable, value)
    done = call("run", "--to", tool, "--runs-dir", str(tmp_path / "runs"), str(tmp_path / "train.py"))
    assert (done.returncode, len(done.stderr.splitlines()), done.stdout) == (2, 1, "")
    assert done.stderr.startswith(f"steadytrain: {variable}={value}: ")
    assert not (tmp_path / "runs").exists()
