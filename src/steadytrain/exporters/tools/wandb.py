"""Weights & Biases: our own run, or columns in the rows of the script's own run.

Our own run is offline, unless ``WANDB_MODE`` says otherwise, and in the run folder, unless ``WANDB_DIR`` says
otherwise; ``wandb sync`` uploads it.

The script's own run has one history with one step counter: any call of ``log`` may advance it, and values with a
smaller step are dropped. ``log(..., commit=False)`` would leave a row behind when the script does not log again, and
change the time of its row. So we never call ``log``: our values join the next row that the script logs, and are plotted
over ``steadytrain/step``. The script's rows, steps and times do not change. Only the newest signals and a bounded
number of tables wait.
"""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, final

import wandb

from steadytrain.core.incident import Action, Incident
from steadytrain.core.model import Severity, Symptom
from steadytrain.exporters.exporter import (
    PREFIX,
    SEVERITY_LEVELS,
    ActiveRun,
    Document,
    DocumentStore,
    Exporter,
    ExporterGoneError,
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

PROJECT_DEFAULT = "steadytrain"
ROWS_WAITING_MAX = 8
"""Steps with tables that wait for the script to log. Few, because outdated tables are useless to a script that logs
rarely.
"""

SIGNED_BINS = 64
"""The usual number of bins of a histogram there."""

TITLE_CHARACTERS_MAX = 63
ARTIFACT_CHARACTERS_MAX = 128
STEP = f"{PREFIX}step"
ALERTED: tuple[Severity, ...] = ("critical",)
_ROW_HOOK = "_partial_history_callback"
"""``run.log`` and ``wandb.log`` both call this with the row, the step and whether the row ends here."""


@final
class Wandb(Tool):
    """Weights & Biases: our own run, or columns in the rows of the script's own run."""

    requires: ClassVar[str] = "wandb"
    install: ClassVar[str] = "steadytrain[wandb]"
    loaded: ClassVar[str] = "wandb"
    keeps_documents: ClassVar[bool] = True
    addresses: ClassVar[Mapping[str, str]] = {"WANDB_BASE_URL": "http-url"}

    def begin(self) -> Exporter:
        return WandbExporter()

    def active(self) -> ActiveRun | None:
        """``handle`` is the ``wandb.Run``."""
        run = getattr(wandb, "run", None)
        return None if run is None or run.disabled else ActiveRun("wandb", str(run.id), run)

    def join(self, handle: Any) -> Exporter:
        return JoiningWandbExporter(handle)

    def documents(self, run: Run, place: Mapping[str, str] | None) -> DocumentStore:
        return WandbDocuments(run, place)


@final
class WandbExporter(Exporter):
    """Our own run, plotted over ``step``, because streams and tables have their own steps."""

    def __init__(self) -> None:
        self._run: Any = None
        self._row: dict[str, Any] = {}

    def open(self, run: Run) -> None:
        name = os.environ.get("WANDB_NAME", run.name)
        self._run = _begun(run, name=name, config={"run_folder": run.folder, **run.facts})
        self._run.define_metric("*", step_metric="step")

    def place(self) -> Mapping[str, str]:
        return {"tool": "wandb", "run_id": str(self._run.id)}

    def scalars(self, row: Row) -> None:
        self._add(row.step, {**row.values, "time": row.time})

    def histogram(self, histogram: Histogram) -> None:
        self._add(histogram.step, {**_histograms("", histogram), "time": histogram.time})

    def symptom(self, symptom: Symptom) -> None:
        self._add(symptom.first_step, {f"symptoms/{symptom.name}": SEVERITY_LEVELS[symptom.severity]})
        _mark_symptom(self._run, "", symptom)

    def action(self, action: Action) -> None:
        _mark_action(self._run, "", action)

    def incident(self, path: Path, incident: Incident) -> None:
        _keep_incident(self._run, "", path, incident, tensors=True)

    def flush(self) -> None:
        row, self._row = self._row, {}
        if row:
            self._run.log(row)

    def close(self, ended: str) -> None:
        self.flush()
        self._run.summary["ended"] = ended
        self._run.finish(exit_code=0 if ended == "finished" else 1)

    def _add(self, step: int, values: dict[str, Any]) -> None:
        """Collect the values of one step in one row."""
        if self._row.get("step", step) != step:
            self.flush()
        self._row |= {**values, "step": step}


@final
class JoiningWandbExporter(Exporter):
    """Columns ``steadytrain/*`` in the script's own run; it never ends that run or logs a row itself."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self._tensors = False
        self._rare: deque[dict[str, Any]] = deque(maxlen=ROWS_WAITING_MAX)
        self._newest: dict[str, Any] = {}
        self._rare_is_next = True
        self._carried_at: int | None = None
        self._lock = threading.Lock()  # held only while a few values are assembled
        self._process = os.getpid()

    def open(self, run: Run) -> None:
        if not callable(getattr(self._run, _ROW_HOOK, None)):
            raise ExporterGoneError(f"wandb {wandb.__version__} logs in an unsupported way")
        self._tensors = run.named
        self._run.define_metric(f"{PREFIX}*", step_metric=STEP)
        self._run.config.update({"steadytrain": {"run_folder": run.folder}}, allow_val_change=True)
        setattr(self._run, _ROW_HOOK, self._carrying(getattr(self._run, _ROW_HOOK)))

    def place(self) -> Mapping[str, str]:
        return {"tool": "wandb", "run_id": str(self._run.id)}

    def scalars(self, row: Row) -> None:
        values = {f"{PREFIX}{name}": value for name, value in row.values.items()}
        if row.rare:
            self._wait(row.step, values)
        else:
            self._newest = {**values, STEP: row.step}

    def histogram(self, histogram: Histogram) -> None:
        self._wait(histogram.step, _histograms(PREFIX, histogram))

    def symptom(self, symptom: Symptom) -> None:
        if not self._is_over():
            level = {f"{PREFIX}symptoms/{symptom.name}": SEVERITY_LEVELS[symptom.severity]}
            self._wait(symptom.first_step, level)
            _mark_symptom(self._run, PREFIX, symptom)

    def action(self, action: Action) -> None:
        if not self._is_over():
            _mark_action(self._run, PREFIX, action)

    def incident(self, path: Path, incident: Incident) -> None:
        if not self._is_over():
            _keep_incident(self._run, PREFIX, path, incident, tensors=self._tensors)

    def flush(self) -> None:
        """Nothing to do: the script writes the next row."""

    def close(self, ended: str) -> None:
        """Values that were attached to no row go into the summary, which keeps the last value of each name."""
        self._run.__dict__.pop(_ROW_HOOK, None)
        if self._is_over():
            return
        left: dict[str, Any] = {}
        while self._rare:
            left |= self._rare.popleft()
        left |= self._newest
        left = {name: _in_summary(value) for name, value in left.items()}
        self._run.summary.update({**left, f"{PREFIX}ended": ended})

    def _carrying(self, original: Callable[..., None]) -> Callable[..., None]:
        def log_row(data: Mapping[str, Any], step: int | None = None, commit: bool | None = None) -> None:
            original({**self._take(step, commit), **data}, step, commit)

        return log_row

    def _take(self, step: int | None, commit: bool | None) -> dict[str, Any]:
        """The values to attach to this call: one of our steps per row of the script, whose row may span several calls.

        Tables and signals alternate. Otherwise the tables would use up all rows of a script that logs rarely.
        """
        if os.getpid() != self._process or commit is False or (step is not None and step == self._carried_at):
            return {}
        self._carried_at = step
        with self._lock:
            if self._rare and (self._rare_is_next or not self._newest):
                self._rare_is_next = False
                return self._rare.popleft()
            self._rare_is_next = True
            values, self._newest = self._newest, {}
            return values

    def _wait(self, step: int, values: dict[str, Any]) -> None:
        """Collect the values of one step in one row."""
        with self._lock:
            if self._rare and self._rare[-1][STEP] == step:
                self._rare[-1] |= values
            else:
                self._rare.append({**values, STEP: step})

    def _is_over(self) -> bool:
        return bool(getattr(self._run, "_is_finished", False))


@final
class WandbDocuments(DocumentStore):
    """Artifacts in a run of their own, as a run that is over takes no more while it waits offline. Its configuration
    and its group name the training run."""

    def __init__(self, run: Run, place: Mapping[str, str] | None) -> None:
        of = place.get("run_id", "") if place is not None else ""
        config = {"run_folder": run.folder, "training_run": of} if of else {"run_folder": run.folder, **run.facts}
        self._name = run.name
        self._run = _begun(run, name=f"{run.name}-documents", config=config, group=of or None, job_type="documents")

    def keep(self, document: Document) -> None:
        artifact = wandb.Artifact(
            _artifact_name(f"{document.kind}-{self._name}-{document.name}"),
            type=document.kind,
            description=as_block(document.text),  # shown as Markdown
            metadata={"step": document.step},
        )
        with artifact.new_file(f"{document.kind}.txt", mode="w", encoding="utf-8") as file:
            file.write(document.text + "\n")
        for path in document.files:
            artifact.add_file(path)
        self._run.log_artifact(artifact)
        self._run.summary.update({f"{document.kind}/{document.name}": document.text})

    def close(self) -> str:
        self._run.finish(exit_code=0)
        folder = str(Path(self._run.dir).parent)
        return f"{folder}; `wandb sync` sends it" if self._run.offline else f"run {self._run.id}"


def _begun(run: Run, **options: Any) -> Any:
    """A run of ours, which collects nothing about this process or machine."""
    folder = os.environ.get("WANDB_DIR", run.folder)
    os.environ.setdefault("WANDB_DATA_DIR", str(Path(folder) / "wandb"))  # where artifacts wait for `wandb sync`
    return wandb.init(
        project=os.environ.get("WANDB_PROJECT", PROJECT_DEFAULT),
        dir=folder,
        mode=os.environ.get("WANDB_MODE", "offline"),
        settings=wandb.Settings(
            console="off",
            silent=True,
            disable_git=True,
            save_code=False,
            x_disable_meta=True,
            x_disable_stats=True,
            x_disable_machine_info=True,
            x_save_requirements=False,
        ),
        **options,
    )


def _artifact_name(text: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in text)[:ARTIFACT_CHARACTERS_MAX]


def _in_summary(value: Any) -> Any:
    """NaN and Inf as text, because a summary discards them as numbers."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _histograms(prefix: str, histogram: Histogram) -> dict[str, Any]:
    """A histogram over the power of two and, where the sign is known, one over the values."""
    name = f"{prefix}{histogram.name}"
    signed = histogram.signed(SIGNED_BINS)
    found = {f"{name}/log2": wandb.Histogram(np_histogram=(histogram.bars, histogram.edges))}
    return found if signed is None else found | {f"{name}/values": wandb.Histogram(np_histogram=signed)}


def _mark_symptom(run: Any, prefix: str, symptom: Symptom) -> None:
    text = symptom_text(symptom)
    run.summary.update({f"{prefix}symptom_messages/{symptom.name}": text})
    if symptom.severity in ALERTED:
        run.alert(title=f"steadytrain: {symptom.name}"[:TITLE_CHARACTERS_MAX], text=text, level="ERROR")


def _mark_action(run: Any, prefix: str, action: Action) -> None:
    run.summary.update({f"{prefix}actions/{action.step:08d}/{action.what}": action_text(action)})


def _keep_incident(run: Any, prefix: str, path: Path, incident: Incident, *, tensors: bool) -> None:
    sent, kept_back = incident_files(path, tensors=tensors)
    artifact = wandb.Artifact(
        _artifact_name(f"incident-{incident.run}-{path.name}"),
        type="incident",
        description=as_block(incident_text(path, incident)),  # shown as Markdown
        metadata={"step": incident.step, "path": str(path), "left_out": [file.name for file in kept_back]},
    )
    for file in sent:
        artifact.add_file(str(file))
    run.log_artifact(artifact)
    run.summary.update({f"{prefix}incidents/{path.name}": incident_text(path, incident)})
