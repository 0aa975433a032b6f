"""The batch rows that a diagnosis shows, from the facts of a survey. Torch-free.

The facts may come from an untrusted file: malformed rows are dropped and texts are sanitised again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.core.incident import Incident, Samples
from steadytrain.diagnosis.answer import BatchRow
from steadytrain.experiments.case import Case
from steadytrain.report.wording import clean
from steadytrain.storage.bundle import is_bundle, open_bundle
from steadytrain.storage.recorded_samples import samples_of_step
from steadytrain.storage.redaction import redact_text
from steadytrain.storage.tape_files import find_recording

ROWS_MAX, VALUES_MAX, TEXT_MAX = 32, 16, 400


def batch_rows(case: Case) -> tuple[BatchRow, ...]:
    """The rows that the survey found odd, one entry for each tensor of the batch.

    Without a symptom there are none: the script may have shuffled its data anew, so they are of no recorded step.
    """
    told = case.facts.get("batch_rows") if case.symptom is not None else None
    entries = told[:ROWS_MAX] if isinstance(told, list) else []
    rows = [row for row in map(_row, entries) if row is not None]
    incident = _incident(case) if rows else None
    known = {step: _samples(case, incident, step, _call(entries)) for step in {row.step for row in rows}}
    return tuple(replace(row, sample=_sample(known[row.step], row.row)) for row in rows)


def _call(entries: Sequence[Any]) -> int:
    """The model call of the step that the rows are of. All are of one."""
    found = entries[0].get("call") if isinstance(entries[0], Mapping) else 0
    return found if isinstance(found, int) else 0


def _incident(case: Case) -> Incident | None:
    try:
        return open_bundle(case.path).incident if is_bundle(case.path) else None
    except UsageError:
        return None


def _samples(case: Case, incident: Incident | None, step: int, call: int) -> Samples | None:
    """The samples of the step's batch that a model call got; None if unknown."""
    try:
        told = incident.samples if incident is not None and incident.step == step else ()
        return next(
            (one for one in told or samples_of_step(find_recording(case.path), step) if one.batch == call), None
        )
    except UsageError:  # damaged files cost the sample names, not the diagnosis
        return None


def _sample(samples: Samples | None, row: int) -> str | None:
    return None if samples is None or not 0 <= row < len(samples.indices) else _safe(samples.named(row))


def _row(entry: Any) -> BatchRow | None:
    try:
        return BatchRow(
            row=int(entry["row"]),
            step=int(entry["step"]),
            tensor=_safe(entry["tensor"]),
            dtype=_safe(entry["dtype"]),
            elements=int(entry["elements"]),
            first=int(entry["first"]),
            values=tuple(_value(value) for value in entry["values"][:VALUES_MAX]),
            smallest=_number(entry, "smallest"),
            largest=_number(entry, "largest"),
            loss=None if entry.get("loss") is None else _value(entry["loss"]),
            text=None if entry.get("text") is None else _safe(entry["text"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _value(value: Any) -> float | int | str:
    plain = isinstance(value, (int, float)) and math.isfinite(value)
    return value if plain else _safe(value)


def _number(entry: Mapping[str, Any], name: str) -> float | None:
    value = entry.get(name)
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _safe(text: Any) -> str:
    return clean(redact_text(str(text)[: 4 * TEXT_MAX]), length_max=TEXT_MAX)
