"""``steadytrain.analyze``: run the detectors on the logs of any training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadytrain.compare.log_reference import LogReference, beside
from steadytrain.core.errors import UsageError
from steadytrain.core.model import SEVERITIES, Severity
from steadytrain.detectors import SYMPTOM_PAGES
from steadytrain.grouping import Judgement, judge
from steadytrain.grouping.catalog import log_detectors
from steadytrain.logs import Columns, Log, Tell, find_logs

SCHEMA = "steadytrain.symptoms/1"


class NothingReadError(UsageError):
    """No log could be read. ``lines`` holds one reason per log."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__(lines[-1])
        self.lines = tuple(lines)


@dataclass(frozen=True)
class AnalyzedRun:
    """One run of a log: its steps (``log.window``), their symptoms, and the healthy ``reference`` if one was given."""

    log: Log
    judgement: Judgement
    reference: LogReference | None = None

    def to_json(self) -> dict[str, Any]:
        """An entry of ``runs`` in the ``steadytrain.symptoms/1`` document."""
        log, steps, summaries = self.log, self.log.window.steps, summaries_of_symptoms()
        seen = self.judgement.to_json()
        return {
            "run": log.name,
            "path": str(log.source),
            "kind": log.kind,
            "steps": len(steps),
            "first_step": int(steps[0]) if len(steps) else None,
            "last_step": int(steps[-1]) if len(steps) else None,
            "health": seen.pop("health"),
            "why": seen.pop("why"),
            "notes": list(log.notes),
            **seen,
            "symptoms": [
                {**symptom.to_json(), "explanation": summaries.get(symptom.name, "")}
                for symptom in self.judgement.symptoms
            ],
            **({"reference": self.reference.to_json()} if self.reference is not None else {}),
        }


@dataclass(frozen=True)
class Analysis:
    """The result of ``analyze``: ``runs`` in the order of the logs, ``unreadable`` with a line for each log that was
    not read.
    """

    runs: tuple[AnalyzedRun, ...]
    unreadable: tuple[str, ...] = ()

    def reaches(self, severity: Severity) -> bool:
        """Whether any run has a symptom of this severity or above."""
        grave = SEVERITIES[SEVERITIES.index(severity) :]
        return any(symptom.severity in grave for run in self.runs for symptom in run.judgement.symptoms)

    def to_json(self) -> dict[str, Any]:
        """The ``steadytrain.symptoms/1`` document."""
        return {
            "schema": SCHEMA,
            "runs": [run.to_json() for run in self.runs],
            "unreadable": list(self.unreadable),
        }


def analyze(
    *logs: str | Path,
    loss: str | None = None,
    step: str | None = None,
    gradient_norm: str | None = None,
    learning_rate: str | None = None,
    compare: str | Path | None = None,
    tell: Tell | None = None,
) -> Analysis:
    """Run the detectors on logs of any training. Needs no PyTorch.

    Args:
        logs: files or folders: ``trainer_state.json``, JSON Lines, CSV, printed text, TensorBoard, Weights & Biases,
            MLflow, Lightning, a steadytrain run (``docs/analyze.md``).
        loss: column of the training loss (nats, or the unit of the log), if the guess is wrong.
        step: column of the optimizer step.
        gradient_norm: column of the global L2 norm of the gradients.
        learning_rate: column of the learning rate.
        compare: a healthy log to compare with each; if it has several runs, the first counts.
        tell: a function that gets a file, the bytes read so far and its size, for a progress bar.

    Returns:
        One entry per run. ``run.log.window`` holds the signals, float64 of shape ``(steps,)`` each; ``run.judgement``
        holds the symptoms, their stories and the health.

    Raises:
        UsageError: nothing could be read, or a named column does not exist.

    Examples:
        >>> analysis = steadytrain.analyze("losses.csv")
        >>> [(run.log.name, run.judgement.health) for run in analysis.runs]
        [('losses.csv', 'sick')]
        >>> analysis.runs[0].judgement.symptoms[0].name
        'nonfinite-loss'
    """
    if not logs:
        raise UsageError("analyze: name at least one log, a file or a folder")
    columns = Columns(loss=loss, step=step, gradient_norm=gradient_norm, learning_rate=learning_rate)
    found: list[Log] = []
    unreadable: list[str] = []
    for path in map(Path, logs):
        try:
            read = find_logs(path, columns, tell=tell or _tell_nobody)
        except UsageError as error:
            unreadable.append(str(error))
            continue
        found += read.logs
        unreadable += read.skipped
    if not found:
        raise NothingReadError(unreadable)
    looking = log_detectors()
    healthy = find_logs(Path(compare), columns, tell=tell or _tell_nobody).logs[0] if compare is not None else None
    runs = (AnalyzedRun(log, judge(log.window, looking), _beside(log, healthy)) for log in found)
    return Analysis(tuple(runs), tuple(unreadable))


def _beside(log: Log, healthy: Log | None) -> LogReference | None:
    if healthy is None:
        return None
    return beside(log.window, healthy.window, run=healthy.name, path=str(healthy.source))


def _tell_nobody(path: Path, done: int, size: int) -> None: ...


def summaries_of_symptoms() -> dict[str, str]:
    """The first line of each symptom's explanation, by name."""
    return {page.name: page.summary for page in SYMPTOM_PAGES.all()}
