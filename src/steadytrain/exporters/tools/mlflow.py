"""MLflow: our own run, or metrics in the script's own run.

Our own run goes where ``MLFLOW_TRACKING_URI`` and ``MLFLOW_EXPERIMENT_NAME`` say, else to MLflow's own default, into an
experiment of our name. Each metric has its own steps, so ours do not affect those of the script's run. MLflow draws no
histograms: three quantiles of the power of two become metrics. It has no events either: a symptom becomes a metric (its
severity) at its step, and a tag with its message.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, final

from mlflow import MlflowClient
from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException

from steadytrain.core.incident import Action, Incident
from steadytrain.core.model import Symptom
from steadytrain.exporters.exporter import (
    PREFIX,
    SEVERITY_LEVELS,
    ActiveRun,
    Document,
    DocumentStore,
    Exporter,
    ExporterError,
    Histogram,
    Row,
    Run,
    Tool,
    action_text,
    as_block,
    incident_files,
    incident_text,
    symptom_text,
)

EXPERIMENT_DEFAULT = "steadytrain"
METRICS_PER_CALL = 500
"""MLflow accepts 1,000 at once. Fewer, because a SQLite file stays locked during a call, and the script may write to
it, too.
"""

NAME_CHARACTERS_MAX = 250
PARAM_CHARACTERS_MAX = 500
TAG_CHARACTERS_MAX = 5000
PARAMS_MAX = 100
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.\- /]|(?<=/)/+|(?<=\.)\.+")
_QUANTILES = (0.05, 0.5, 0.95)


@final
class Mlflow(Tool):
    """MLflow: our own run, or metrics in the script's own run."""

    requires: ClassVar[str] = "mlflow"
    install: ClassVar[str] = "steadytrain[mlflow]"
    loaded: ClassVar[str] = "mlflow.tracking.fluent"
    signals_every_steps: ClassVar[int] = 10  # each value becomes a database row, usually over a network
    keeps_documents: ClassVar[bool] = True
    addresses: ClassVar[Mapping[str, str]] = {"MLFLOW_TRACKING_URI": "tracker"}

    def begin(self) -> Exporter:
        return MlflowExporter(MlflowClient(), run_id=None, prefix="")

    def active(self) -> ActiveRun | None:
        """``handle`` is tracking URI and run id, because MLflow's active run belongs to one thread."""
        fluent, uri = sys.modules["mlflow.tracking.fluent"], sys.modules["mlflow.tracking"]
        run = fluent.active_run()
        if run is None:
            return None
        return ActiveRun("mlflow", str(run.info.run_id), (str(uri.get_tracking_uri()), str(run.info.run_id)))

    def join(self, handle: Any) -> Exporter:
        tracking_uri, run_id = handle
        return MlflowExporter(MlflowClient(tracking_uri), run_id=run_id, prefix=PREFIX)

    def documents(self, run: Run, place: Mapping[str, str] | None) -> DocumentStore:
        return MlflowDocuments(MlflowClient(), run, place)


@final
class MlflowExporter(Exporter):
    """Metrics in batches, tags, and incidents as artifacts, through a client and never through the active run."""

    def __init__(self, client: Any, *, run_id: str | None, prefix: str) -> None:
        self._client = client
        self._is_ours = run_id is None
        self._run_id = run_id or ""
        self._prefix = prefix
        self._tensors = False
        self._metrics: list[Any] = []

    def open(self, run: Run) -> None:
        self._tensors = run.named
        if not self._is_ours:
            self._client.set_tag(self._run_id, "steadytrain.run_folder", run.folder)
            return
        tags = {"mlflow.runName": run.name, "steadytrain.run_folder": run.folder}
        self._run_id = self._client.create_run(self._experiment(), tags=tags).info.run_id
        params = [Param(_name(name), str(value)[:PARAM_CHARACTERS_MAX]) for name, value in _flat(run.facts).items()]
        self._client.log_batch(self._run_id, params=params[:PARAMS_MAX])

    def place(self) -> Mapping[str, str]:
        return {"tool": "mlflow", "run_id": self._run_id, "prefix": self._prefix}

    def scalars(self, row: Row) -> None:
        for name, value in row.values.items():
            self._add(name, value, row.time, row.step)

    def histogram(self, histogram: Histogram) -> None:
        for share, exponent in histogram.quantiles(_QUANTILES).items():
            self._add(f"{histogram.name}/log2_p{round(100 * share):02d}", exponent, histogram.time, histogram.step)
        if histogram.positive_share is not None:
            self._add(f"{histogram.name}/positive_share", histogram.positive_share, histogram.time, histogram.step)

    def symptom(self, symptom: Symptom) -> None:
        level = SEVERITY_LEVELS[symptom.severity]
        self._add(f"symptoms/{symptom.name}", level, time.time(), symptom.first_step)
        text = symptom_text(symptom)
        self._client.set_tag(self._run_id, f"steadytrain.symptom.{_name(symptom.name)}", text[:TAG_CHARACTERS_MAX])

    def action(self, action: Action) -> None:
        text = action_text(action)[:TAG_CHARACTERS_MAX]
        self._client.set_tag(self._run_id, f"steadytrain.action.{action.step:08d}.{_name(action.what)}", text)

    def incident(self, path: Path, incident: Incident) -> None:
        text = incident_text(path, incident)
        self._client.set_tag(self._run_id, f"steadytrain.incident.{_name(path.name)}", text[:TAG_CHARACTERS_MAX])
        sent, kept_back = incident_files(path, tensors=self._tensors)
        folder = f"{self._prefix}incidents/{path.name}"
        for file in sent:
            self._client.log_artifact(self._run_id, str(file), folder)
        if kept_back:
            text += "\nnot sent: " + ", ".join(file.name for file in kept_back)
        self._client.log_text(self._run_id, as_block(text) + "\n", f"{folder}/README.md")

    def flush(self) -> None:
        waiting, self._metrics = self._metrics, []
        for start in range(0, len(waiting), METRICS_PER_CALL):
            self._client.log_batch(self._run_id, metrics=waiting[start : start + METRICS_PER_CALL])

    def close(self, ended: str) -> None:
        self.flush()
        self._client.set_tag(self._run_id, "steadytrain.ended", ended)
        if self._is_ours:
            self._client.set_terminated(self._run_id, "FINISHED" if ended == "finished" else "FAILED")

    def _experiment(self) -> str:
        given = os.environ.get("MLFLOW_EXPERIMENT_ID")
        if given:
            return given
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT_DEFAULT)
        found = self._client.get_experiment_by_name(name)
        return str(found.experiment_id if found is not None else self._client.create_experiment(name))

    def _add(self, name: str, value: float, time_s: float, step: int) -> None:
        self._metrics.append(Metric(_name(f"{self._prefix}{name}"), value, int(1000 * time_s), step))


@final
class MlflowDocuments(DocumentStore):
    """Artifacts and tags in the run that an exporter wrote. A run that never went there gets one of its own."""

    def __init__(self, client: Any, run: Run, place: Mapping[str, str] | None) -> None:
        self._client = client
        self._is_new = place is None
        if place is not None:
            self._run_id, self._prefix = place.get("run_id", ""), place.get("prefix", "")
            self._refuse_unknown()
            return
        exporter = MlflowExporter(client, run_id=None, prefix="")
        exporter.open(run)
        self._run_id, self._prefix = exporter.place()["run_id"], ""

    def keep(self, document: Document) -> None:
        folder = f"{self._prefix}{document.kind}/{_name(document.name)}"
        tag = f"steadytrain.{document.kind}.{_name(document.name)}"
        self._client.set_tag(self._run_id, tag, document.text[:TAG_CHARACTERS_MAX])
        self._client.log_text(self._run_id, document.text + "\n", f"{folder}/{document.kind}.txt")
        for file in document.files:
            self._client.log_artifact(self._run_id, file, folder)

    def close(self) -> str:
        if self._is_new:
            self._client.set_terminated(self._run_id, "FINISHED")
        return f"run {self._run_id}"

    def _refuse_unknown(self) -> None:
        try:
            self._client.get_run(self._run_id)
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                raise ExporterError(
                    f"no run {self._run_id} there; set MLFLOW_TRACKING_URI to where the run was sent"
                ) from None
            raise


def _name(name: str) -> str:
    """``name`` with characters replaced that MLflow does not accept."""
    return _NOT_IN_NAMES.sub("_", name).strip("/")[:NAME_CHARACTERS_MAX]


def _flat(facts: Mapping[str, Any], start: str = "") -> dict[str, Any]:
    """Flatten ``{"git": {"commit": x}}`` to ``{"git.commit": x}``."""
    flat: dict[str, Any] = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{start}{name}.")
        else:
            flat[f"{start}{name}"] = value
    return flat
