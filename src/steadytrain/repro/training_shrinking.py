"""Finds the rise in captured steps, shrinks it and writes the script, in a process without user code.

Run as ``python -m steadytrain.repro.training_shrinking FOLDER USUAL SPREAD PEAK SECONDS``. It reads the files of
``training_capture``, and writes ``made.json`` and, if it finds a rise, the script and its tensors.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from steadytrain.repro.arguments import CannotWriteError
from steadytrain.repro.program_script import SCRIPT
from steadytrain.repro.program_script import TENSORS as SCRIPT_TENSORS
from steadytrain.repro.program_shrinking import EXACT_SCRIPT, MADE
from steadytrain.repro.rise_search import CannotShowError, Rise, RunLosses, find_rise, read_captured
from steadytrain.repro.shrink_training import rows_of, smaller
from steadytrain.repro.training_capture import RESULT, TENSORS
from steadytrain.repro.training_program import Training
from steadytrain.repro.training_script import (
    FAULTS,
    names_in_script,
    optimizer_call,
    training_title,
    write_training_script,
)
from steadytrain.storage.bundle import write_json
from steadytrain.storage.documents import write_text
from steadytrain.tracing.tensor_summary import summarize

LESS_RATE = 0.1


def main(folder_name: str, usual: str, spread: str, peak: str, seconds: str) -> int:
    """Makes the script in ``folder_name``."""
    torch.set_num_threads(1)  # fixes the order of summation
    folder, deadline = Path(folder_name), time.monotonic() + float(seconds)
    document = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    tensors = torch.load(folder / TENSORS, weights_only=True)
    try:
        captured = read_captured(document, tensors)
        found = find_rise(captured, RunLosses(float(usual), float(spread), float(peak)))
    except (CannotShowError, CannotWriteError) as refusal:
        write_json(folder / MADE, {"why": str(refusal)})
        return 0
    rise, left_out = smaller(found, lambda: time.monotonic() > deadline, lines_of)
    script = write_training_script(rise, exact=False)
    write_text(folder / SCRIPT, script.text)
    write_text(folder / EXACT_SCRIPT, write_training_script(rise, exact=True).text)
    torch.save(dict(script.kept), folder / SCRIPT_TENSORS)
    names = {f"w{at}": name for at, name in enumerate(document["parameters"])}
    write_json(folder / MADE, {"why": None, **_facts(rise, found, names), "left_out": [*left_out, *captured.notes]})
    return 0


def lines_of(rise: Rise) -> int:
    return len(write_training_script(rise, exact=False).text.splitlines())


def _facts(rise: Rise, found: Rise, names: Mapping[str, str]) -> dict[str, Any]:
    training = rise.training
    return {
        "title": training_title(rise),
        "shape": rise.shape,
        "fault": FAULTS[rise.shape],
        "step": rise.step,
        "low": rise.low,
        "high": rise.high,
        "limit": rise.limit,
        "found": {"low": found.low, "high": found.high},
        "usual": rise.run.usual,
        "peak": rise.run.peak,
        "updates": 0 if rise.shape == "batch" else len(training.batches),
        "rows": [rows_of(one.training.batches[-1]) for one in (rise, found)],
        "ordinary_high": rise.ordinary_high,
        "operations": [step.operation for step in training.program.steps],
        "optimizer": optimizer_call(training.rule, training.rates[0]),
        "state_kept": bool(training.rule.state) and rise.shape != "batch",
        "clip": training.rule.clip,
        "weights": [names[name] for name in training.rule.weights],
        "inputs": _inputs(rise, names),
        "conditions": {} if rise.shape == "batch" else _conditions(rise),
    }


def _inputs(rise: Rise, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """The inputs by their names in the script; weights with their names in the model too."""
    order, training = names_in_script(rise), rise.training
    weights = [summarize(f"{order[name]}, {names[name]}", one) for name, one in training.weights.items()]
    batch = [summarize(order[name], one) for name, one in training.batches[-1].items()]
    return [one.to_json() for one in [*weights, *sorted(batch, key=lambda one: one.name)]]


def _conditions(rise: Rise) -> dict[str, list[float]]:
    """The losses before and after the same updates in float64, at a tenth of the rate, and without optimizer state."""
    training = rise.training
    less = tuple(tuple(rate * LESS_RATE for rate in one) for one in training.rates)
    tries = {"float64": _in_float64(training), "a tenth of the learning rate": replace(training, rates=less)}
    if training.rule.state:
        tries["the optimizer without its state"] = replace(training, rule=replace(training.rule, state={}))
    measured = {name: rise.measured(one) for name, one in tries.items()}
    return {name: [*pair] for name, pair in measured.items() if all(math.isfinite(number) for number in pair)}


def _in_float64(training: Training) -> Training:
    def wide(value: Any) -> Any:
        return value.double() if isinstance(value, Tensor) and value.is_floating_point() and value.dim() else value

    inputs = {name: wide(tensor) for name, tensor in training.program.inputs.items()}
    batches = tuple({name: wide(tensor) for name, tensor in batch.items()} for batch in training.batches)
    state = {name: {key: wide(one) for key, one in values.items()} for name, values in training.rule.state.items()}
    return replace(
        training, program=training.program.given(inputs), batches=batches, rule=replace(training.rule, state=state)
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
