"""``ISSUE.md`` for a rising loss: what the script shows, and what it does not.

Redacted and without paths, like the draft for a NaN (``issue.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from steadytrain.core.incident import OperandRange
from steadytrain.core.model import Symptom, Window
from steadytrain.repro.issue import curves, draft, run_lines, script_parts
from steadytrain.storage.redaction import redact_text

STEPS_BEFORE, STEPS_SHOWN = 4, 12
WEIGHTS_NAMED = 6

MEANS: Mapping[str, str] = {
    "batch": (
        "The weights are those from before the rise, and no update is made. So the batch has it, and not an update: "
        "look at its rows."
    ),
    "update": (
        "One update is made, with the batch, the weights and the optimizer's state that the run had. It raises the "
        "loss of that same batch, so the update is too large or goes the wrong way; later batches have no part in it."
    ),
    "updates": (
        "The updates of the recorded steps are made with their batches. Together they raise the loss of the first of "
        "these batches; none of them does it alone."
    ),
}


def rising_issue_text(
    made: Mapping[str, Any],
    script: str,
    tensors_bytes: int | None,
    symptom: Symptom,
    scalars: Window,
    environment: Mapping[str, Any],
) -> str:
    """The draft as Markdown. ``made`` are the facts of ``training_shrinking``."""
    where = ["## Where it came from", "\n".join(_training(made, symptom, environment))]
    parts = (
        _what_happens(made, symptom),
        script_parts(script, tensors_bytes, "rise"),
        _conditions(made),
        _inputs(made),
        [*where, curves(_around(scalars, symptom.first_step))],
    )
    return draft(made["title"], *parts, environment=environment)


def _what_happens(made: Mapping[str, Any], symptom: Symptom) -> Iterator[str]:
    yield "## What happens"
    yield f"{made['title']}. {MEANS[made['shape']]}"
    yield "## What the script shows, and what not"
    lines = [
        f"- It fails where the loss is {made['limit']:.4g} or more at the end: half of the rise that it has here.",
        f"- The run: a loss of {made['usual']:.4g} before step {symptom.first_step}, then up to {made['peak']:.4g}. "
        f"With all rows and the whole model the script's steps go from {made['found']['low']:.4g} to "
        f"{made['found']['high']:.4g}, cut down from {made['low']:.4g} to {made['high']:.4g}.",
    ]
    kept, all_rows = made["rows"]
    if kept is not None and kept != all_rows:
        lines.append(f"- Of {all_rows} rows of a batch it has {kept}, which are enough.")
        if made["shape"] == "batch":
            lines.append(f"- Of the batch before no {kept} rows have a loss above {made['ordinary_high']:.4g}.")
    if made["shape"] != "batch":
        state = "as the run had it" if made["state_kept"] else "left empty: the rise does not need it"
        lines.append(f"- The optimizer's state is {state}.")
        lines.append("- It does not say that the rise would have stayed: what later updates make of it is not in it.")
    lines += [f"- Left out: {redact_text(one)}." for one in made["left_out"]]
    yield "\n".join(lines)


def _conditions(made: Mapping[str, Any]) -> Iterator[str]:
    if not made["conditions"]:
        return
    yield "## Under other conditions"
    rows = ["| condition | loss before | loss after |", "|---|---|---|"]
    rows.append(f"| as it is | {made['low']:.6g} | {made['high']:.6g} |")
    rows += [f"| {name} | {pair[0]:.6g} | {pair[1]:.6g} |" for name, pair in made["conditions"].items()]
    yield "\n".join(rows)


def _inputs(made: Mapping[str, Any]) -> Iterator[str]:
    yield "## Weights and batch"
    ranges = [OperandRange.from_json(one) for one in made["inputs"]]
    rows = ["| tensor | in this script |", "|---|---|"]
    rows += [f"| `{one.name}` | {one.summary()} |" for one in ranges]
    yield "\n".join(rows)


def _training(made: Mapping[str, Any], symptom: Symptom, environment: Mapping[str, Any]) -> Iterator[str]:
    yield f"- {symptom.name}: {redact_text(symptom.message)}"
    what = {"batch": "the batch", "update": "the update", "updates": f"the first of {made['updates']} updates"}
    yield f"- the script has {what[made['shape']]} of step {made['step']}"
    named = [f"`{name}`" for name in made["weights"][:WEIGHTS_NAMED]]
    more = f" and {len(made['weights']) - WEIGHTS_NAMED} more" if len(made["weights"]) > WEIGHTS_NAMED else ""
    yield f"- weights in it: {', '.join(named)}{more}"
    clip = f", gradients clipped to a norm of {made['clip']:g}" if made["clip"] is not None else ""
    yield f"- update: `{made['optimizer']}`{clip}"
    yield from run_lines(environment)


def _around(scalars: Window, step: int) -> Window:
    at = int(np.searchsorted(scalars.steps, step))
    start = max(0, at - STEPS_BEFORE)
    return scalars.slice(start, start + STEPS_SHOWN)
