"""A NaN or Inf that only compiled code makes: cuts the program of the eager loss down to the fewest operations.

Run as ``python -m steadytrain.repro.compiled_fault FOLDER SECONDS``. It reads the program of the whole loss from
``failing_step_capture``, and writes ``made.json`` and the script. Each try is a compilation of some seconds, so there
are few: one with all intermediate values, then the operations before the first bad one by doubling, then fewer rows.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from steadytrain.repro.arguments import refs_in
from steadytrain.repro.failing_step_capture import RESULT, TENSORS
from steadytrain.repro.program import Program, program_from_json, renamed, run_step, short_names, used_names
from steadytrain.repro.program_script import COMPILED_FAULT, SCRIPT, save_tensors, title, write_script
from steadytrain.repro.program_script import TENSORS as SCRIPT_TENSORS
from steadytrain.repro.program_shrinking import EXACT_SCRIPT, MADE
from steadytrain.repro.shrink_program import rounded
from steadytrain.repro.variants import compile_quickly
from steadytrain.storage.bundle import write_json
from steadytrain.storage.documents import write_text
from steadytrain.tracing.tensor_summary import WORDS, Kinds, kinds_of, summarize
from steadytrain.tracing.value_origins import each_kind

AOT_EAGER, INDUCTOR = "aot_eager", "inductor"
ROWS_TRIED = (1, 2, 4)
"""Sizes to try for the shared first dimension of the inputs. Each is one compilation."""

DIGITS_TRIED = 3


def main(folder_name: str, seconds: str) -> int:
    """Makes the script in ``folder_name``."""
    torch.set_num_threads(1)
    compile_quickly()
    folder, deadline = Path(folder_name), time.monotonic() + float(seconds)
    document = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    whole = program_from_json(document["compiled"], torch.load(folder / TENSORS, weights_only=True))
    whole = replace(whole, device="cpu")
    if any(kinds_of(tensor) for tensor in whole.inputs.values()) or not _is_finite(eager_values(whole)):
        write_json(folder / MADE, {"why": "the loss is not finite in eager mode either"})
        return 0
    backend, last = _where_bad(whole)
    if backend is None:
        write_json(
            folder / MADE,
            {"why": "the loss is finite in eager mode and compiled; the compiled backward was not tried"},
        )
        return 0
    small, finished = cut(whole, last, backend, lambda: time.monotonic() > deadline)
    captured = dict(small.inputs)
    small = fewer_rows(small, backend, lambda: time.monotonic() > deadline)
    small = _with_few_digits(small, backend)
    kinds = compiled_kinds(small, backend)
    small = replace(small, kind=each_kind(kinds)[0])
    order = short_names(small)
    named = renamed(small, order)
    script = write_script(named, exact=False, compiled=backend)
    write_text(folder / SCRIPT, script.text)
    write_text(folder / EXACT_SCRIPT, write_script(named, exact=True, compiled=backend).text)
    if script.tensors:
        save_tensors(script.tensors, folder / SCRIPT_TENSORS)
    facts = {
        "title": title(named, compiled=backend),
        "fault": COMPILED_FAULT,
        "operations": [step.operation for step in named.steps],
        "produced": WORDS[named.kind],
        "backward": False,
        "forward_finite": False,
        "target": named.target,
        "gradients": [],
        "device": "cpu",
        "inputs": [summarize(name, tensor).to_json() for name, tensor in named.inputs.items()],
        "captured": [summarize(order[name], captured[name]).to_json() for name in small.inputs],
        "finished": finished,
        "backend": backend,
        "variants": {"eager": "finite", **{name: _words(named, name) for name in (AOT_EAGER, INDUCTOR)}},
    }
    write_json(folder / MADE, {"why": None, **facts})
    return 0


def cut(whole: Program, last: int, backend: str, expired: Callable[[], bool]) -> tuple[Program, bool]:
    """The fewest operations up to ``last`` that fail when compiled. Their inputs are eager values."""
    values = eager_values(whole)
    best = whole

    def bad(count: int) -> bool:
        nonlocal best
        part = part_of(whole, values, max(0, last + 1 - count), last)
        found = not expired() and bool(compiled_kinds(part, backend))
        best = part if found else best
        return found

    count = 2
    while count <= last and not bad(count):
        count *= 2
    if count > last:
        bad(last + 1)
        return best, not expired()
    low, high = count // 2 + 1, count
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if bad(middle) else (middle + 1, high)
    return best, not expired()


def _where_bad(whole: Program) -> tuple[str | None, int]:
    """The first backend with a non-finite value, and the operation that makes the first one.

    All values are requested at once. If that hides the fault (by another fusion), only the loss is requested, and the
    last
    operation is returned.
    """
    made = [(at, name) for at, step in enumerate(whole.steps) for name in step.results if name is not None]
    for backend in (AOT_EAGER, INDUCTOR):
        results = compiled_results(whole, backend, [name for _, name in made])
        found = next((at for (at, _), one in zip(made, results, strict=False) if kinds_of(one)), None)
        if found is not None:
            return backend, found
    return (INDUCTOR if compiled_kinds(whole, INDUCTOR) else None), len(whole.steps) - 1


def _with_few_digits(program: Program, backend: str) -> Program:
    """Rounds the inputs for readability, if the fault survives."""
    inputs = {n: rounded(one, DIGITS_TRIED) if one.is_floating_point() else one for n, one in program.inputs.items()}
    candidate = program.given(inputs)
    return candidate if _is_finite(eager_values(candidate)) and compiled_kinds(candidate, backend) else program


def fewer_rows(program: Program, backend: str, expired: Callable[[], bool]) -> Program:
    """Keeps a few rows in all inputs that share the first size."""
    size = next((tensor.shape[0] for tensor in program.inputs.values() if tensor.dim()), 1)
    for rows in ROWS_TRIED:
        if rows >= size or expired():
            break
        inputs = {
            name: tensor[:rows].contiguous() if tensor.dim() and tensor.shape[0] == size else tensor
            for name, tensor in program.inputs.items()
        }
        candidate = program.given(inputs)
        if _is_finite(eager_values(candidate)) and compiled_kinds(candidate, backend):
            return candidate
    return program


def part_of(whole: Program, values: Mapping[str, Tensor], first: int, last: int) -> Program:
    """Operations ``first`` to ``last`` of a program as their own program."""
    steps = whole.steps[first : last + 1]
    made = {name for step in steps for name in [*step.results, *(new for _, new in step.written)] if name}
    target = steps[-1].results[0]
    assert target is not None, "only operations with a result are asked for"
    chosen = _needed(steps, target)
    read = {name for step in chosen for name in refs_in([list(step.args), dict(step.kwargs)])} - made
    inputs = {name: values[name] for name in sorted(read)}
    part = replace(
        whole, steps=tuple(chosen), inputs=inputs, outputs=(target,), target=target, subject=chosen[-1].operation
    )
    used = used_names(part)
    return part.given({name: tensor for name, tensor in inputs.items() if name in used})


def _needed(steps: Sequence[Any], target: str) -> list[Any]:
    """The ``steps`` on which ``target`` depends."""
    wanted: set[str] = {target}
    chosen: list[Any] = []
    for step in reversed(steps):
        if wanted & {name for name in [*step.results, *(new for _, new in step.written)] if name}:
            chosen.insert(0, step)
            wanted |= set(refs_in([list(step.args), dict(step.kwargs)]))
    return chosen


def eager_values(program: Program) -> dict[str, Tensor]:
    """Every value of an eager run; empty if torch raises."""
    values = {name: tensor.clone() for name, tensor in program.inputs.items()}
    try:
        with torch.no_grad():
            if program.seeded:
                torch.manual_seed(0)
            for step in program.steps:
                run_step(step, values, program.device)
    except Exception:  # for example, shapes that do not fit
        return {}
    return values


def compiled_kinds(program: Program, backend: str) -> Kinds:
    """The non-finite kinds in the compiled program's result; none if it does not compile."""
    return next((kinds_of(one) for one in compiled_results(program, backend, [program.target])), Kinds.NONE)


def compiled_results(program: Program, backend: str, wanted: Sequence[str]) -> list[Tensor]:
    """These values of the compiled program; empty if it does not compile."""
    order = short_names(program)
    named = renamed(program, order)
    space: dict[str, Any] = {"__name__": "repro", "torch": torch}
    text = write_script(named, exact=False, compiled=backend).text
    body = text[text.index("def forward") : text.index('if __name__ == "__main__":')].rstrip()
    body = body[: body.rindex("\n")] + f"\n    return [{', '.join(order[name] for name in wanted)}]\n"
    exec(compile(body, "<forward>", "exec"), space)
    torch.compiler.reset()
    try:
        with torch.no_grad():
            forward: Any = torch.compile(space["forward"], backend=backend)
            found = forward(*(one.clone() for one in named.inputs.values()))
    except Exception:  # the compiler fails
        return []
    return list(found)


def _words(program: Program, backend: str) -> str:
    kinds = each_kind(compiled_kinds(program, backend))
    return " and ".join(WORDS[kind] for kind in kinds) or "finite"


def _is_finite(values: Mapping[str, Tensor]) -> bool:
    return bool(values) and not any(kinds_of(tensor) for tensor in values.values() if isinstance(tensor, Tensor))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
