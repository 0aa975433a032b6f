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
        "The weights are from before the rise, and no update is made. So the batch causes the rise, not an update: "
        "inspect its rows."
    ),
    "update": (
        "One update is made with the run's batch, weights and optimizer state. It raises the loss of that same batch, "
        "so the update is too large or goes in the wrong direction. Later batches play no part."
    ),
    "updates": (
        "The recorded updates are made with their batches. Together they raise the loss of the first batch; none of "
        "them does so alone."
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
    yield "## What the script shows, and what it does not"
    lines = [
        f"- It fails if the final loss is {made['limit']:.4g} or more: half of the rise here.",
        f"- The run: a loss of {made['usual']:.4g} before step {symptom.first_step}, then up to {made['peak']:.4g}. "
        f"With all rows and the whole model, these steps take the loss from {made['found']['low']:.4g} to "
        f"{made['found']['high']:.4g}; in this script, from {made['low']:.4g} to {made['high']:.4g}.",
    ]
    kept, all_rows = made["rows"]
    if kept is not None and kept != all_rows:
        lines.append(f"- It has {kept} of the {all_rows} rows of a batch, which suffice.")
        if made["shape"] == "batch":
            lines.append(f"- No {kept} rows of the batch before have a loss above {made['ordinary_high']:.4g}.")
    if made["shape"] != "batch":
        state = "as the run had it" if made["state_kept"] else "empty: the rise does not need it"
        lines.append(f"- The optimizer's state is {state}.")
        lines.append("- It does not show whether the rise would last: later updates are not in it.")
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
