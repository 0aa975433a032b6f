"""Shrinks a captured program and writes it as a script, in a process without user code.

Run as ``python -m steadytrain.repro.program_shrinking FOLDER SECONDS``. It reads the files of ``failing_step_capture``,
and writes ``made.json`` and, if a program shows the fault, the script and its tensors.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from steadytrain.repro.failing_step_capture import RESULT, TENSORS
from steadytrain.repro.program import Program, program_from_json, renamed, run, short_names, shows_fault
from steadytrain.repro.program_script import SCRIPT, save_tensors, title, write_script
from steadytrain.repro.program_script import TENSORS as SCRIPT_TENSORS
from steadytrain.repro.shrink_program import shrink
from steadytrain.storage.bundle import write_json
from steadytrain.storage.documents import write_text
from steadytrain.tracing.tensor_summary import WORDS, Kinds, kinds_of, summarize

MADE = "made.json"
EXACT_SCRIPT = "exact.py"
"""The same script with operations called by their overload, in case the readable one behaves differently."""


def main(folder_name: str, seconds: str) -> int:
    """Makes the script in ``folder_name``."""
    torch.set_num_threads(1)  # fixes the order of summation
    folder = Path(folder_name)
    document = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    tensors = torch.load(folder / TENSORS, weights_only=True)
    chosen = next(_faulty(document["programs"], tensors), None)
    if chosen is None:
        why = "the operation alone, with its recorded inputs, does not reproduce the value"
        write_json(folder / MADE, {"why": why})
        return 0
    deadline = time.monotonic() + float(seconds)
    small, finished = shrink(chosen, lambda: time.monotonic() > deadline)
    order = short_names(small)
    small = renamed(small, order)
    script = write_script(small, exact=False)
    write_text(folder / SCRIPT, script.text)
    write_text(folder / EXACT_SCRIPT, write_script(small, exact=True).text)
    if script.tensors:
        save_tensors(script.tensors, folder / SCRIPT_TENSORS)
    write_json(folder / MADE, {"why": None, **facts(renamed_inputs(chosen, order), small), "finished": finished})
    return 0


def renamed_inputs(captured: Program, order: Mapping[str, str]) -> Mapping[str, torch.Tensor]:
    """The captured tensors behind the inputs of the small program, by their names there."""
    return {order[name]: tensor for name, tensor in captured.inputs.items() if name in order}


def facts(captured: Mapping[str, torch.Tensor], small: Program) -> dict[str, Any]:
    """The facts about a program, as plain JSON."""
    return {
        "title": title(small),
        "operations": [step.operation for step in small.steps],
        "produced": WORDS[small.kind],
        "backward": small.backward,
        "forward_finite": not any(kinds_of(run(small).values[name]) for name in small.outputs),
        "target": small.target,
        "gradients": [name for name in small.gradients if name],
        "device": small.device,
        "inputs": [summarize(name, tensor).to_json() for name, tensor in small.inputs.items()],
        "captured": [summarize(name, captured[name]).to_json() for name in small.inputs],
    }


def _faulty(programs: list[Mapping[str, Any]], tensors: Mapping[str, torch.Tensor]) -> Iterator[Program]:
    """The programs that show the fault, in order, on the CPU if possible, else on their own device."""
    for number, data in enumerate(programs):
        lead = f"{number}."
        mine = {name.removeprefix(lead): tensor for name, tensor in tensors.items() if name.startswith(lead)}
        program = program_from_json(data, mine)
        for device in dict.fromkeys(("cpu", program.device)):
            candidate = replace(program, device=device)
            if candidate.kind is not Kinds.NONE and shows_fault(candidate):
                yield candidate


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
