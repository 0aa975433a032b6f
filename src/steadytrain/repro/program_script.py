"""Writes a program as a script that needs torch alone and fails while the fault exists.

``inputs()`` returns the tensors, ``forward(...)`` runs the operations, and the rest checks the result and raises an
``AssertionError``. Small tensors are written as literals. Larger ones go into a file that
``torch.load(weights_only=True)`` reads. The script depends on no date, machine or path.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from steadytrain.repro.arguments import Ref, map_leaves, refs_in, source
from steadytrain.repro.program import SEED, Program, Step
from steadytrain.repro.readable import only_first, readable_call
from steadytrain.tracing.tensor_summary import WORDS

SCRIPT, TENSORS = "repro.py", "repro.pt"

WRITTEN_OUT_MAX = 16
"""A tensor with more elements goes into the file."""

FULL_FROM = 5
"""A constant tensor with at least this many elements is written as ``torch.full``."""

LINE_CHARACTERS_MAX = 110
FAULT = "out of finite inputs"
"""Part of the assertion message, which separates the fault from other failures."""


@dataclass(frozen=True)
class Script:
    """The text, and the tensors of its file."""

    text: str
    tensors: dict[str, Tensor]


COMPILED_FAULT = "in compiled code only"


def write_script(program: Program, *, exact: bool, compiled: str | None = None) -> Script:
    """``program`` as a script. With ``exact`` it calls operations by their overload, otherwise by their public name.

    ``compiled`` is the backend of a fault that does not occur in eager mode.
    """
    beside = {
        name: tensor
        for name, tensor in program.inputs.items()
        if tensor.numel() > WRITTEN_OUT_MAX and not _is_constant(tensor)
    }
    names = ", ".join(program.inputs)
    names = f"({names},)" if len(program.inputs) == 1 else names
    lines = [
        *_docstring(program, compiled),
        *(["from pathlib import Path", ""] if beside else []),
        "import torch",
        "",
        *(['device = "' + program.device + '"', ""] if program.device != "cpu" or _uses_device(program) else []),
        "",
        "def inputs():",
        *([f'    kept = torch.load(Path(__file__).with_name("{TENSORS}"), weights_only=True)'] if beside else []),
        *(f"    {name} = {_tensor(name, tensor, name in beside, program)}" for name, tensor in program.inputs.items()),
        f"    return {names}",
        "",
        "",
        f"def forward({', '.join(_arguments(program))}):",
        *([f"    torch.manual_seed({SEED})"] if program.seeded else []),
        *(f"    {line}" for step in program.steps for line in statements(step, _used(program), exact=exact)),
        f"    return {', '.join(_returned(program))}",
        "",
        "",
        'if __name__ == "__main__":',
        *(f"    {line}" for line in _ending(program, names, compiled)),
    ]
    return Script("\n".join(lines) + "\n", beside)


def title(program: Program, *, compiled: str | None = None) -> str:
    """The fault in one line."""
    word = WORDS.get(program.kind, "NaN")
    if compiled is not None:
        return f"{program.subject} makes {word} {FAULT}, compiled with {compiled} and not in eager mode"
    return f"{'backward of ' if program.backward else ''}{program.subject} makes {word} {FAULT}"


def save_tensors(tensors: dict[str, Tensor], path: Any) -> None:
    """Writes the tensors file, with equal bytes for equal tensors."""
    torch.save({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, path)


def _docstring(program: Program, compiled: str | None) -> Iterator[str]:
    text = f"{title(program, compiled=compiled)}. Needs torch alone ({torch.__version__} when this was made)."
    first, *rest = textwrap.wrap(text, LINE_CHARACTERS_MAX)
    yield f'"""{first}'
    yield from rest
    yield "Fails with an AssertionError while the fault is there."
    yield '"""'


def _tensor(name: str, tensor: Tensor, beside: bool, program: Program) -> str:
    on = ", device=device" if program.device != "cpu" else ""
    if beside:
        return f'kept["{name}"]' + (".to(device)" if on else "")
    if tensor.numel() >= FULL_FROM and _is_constant(tensor):
        return f"torch.full({list(tensor.shape)}, {_number(tensor.flatten()[0])}, dtype={tensor.dtype}{on})"
    if not tensor.numel():
        return f"torch.empty({list(tensor.shape)}, dtype={tensor.dtype}{on})"
    return f"torch.tensor({_numbers(tensor)}, dtype={tensor.dtype}{on})"


def _is_constant(tensor: Tensor) -> bool:
    """Whether all numbers are equal, including the sign of zero."""
    flat = tensor.flatten()
    same = flat.numel() > 0 and bool((flat == flat[0]).all())
    return same and (not flat.is_floating_point() or bool((flat.signbit() == flat[0].signbit()).all()))


def _numbers(tensor: Tensor) -> str:
    if tensor.dim() == 0:
        return _number(tensor)
    return f"[{', '.join(_numbers(entry) for entry in tensor)}]"


def _number(tensor: Tensor) -> str:
    """The shortest text that gives the same number in the tensor's dtype."""
    value = tensor.item()
    if tensor.dtype == torch.float64 or not tensor.is_floating_point():
        return repr(value)
    for digits in range(1, 18):
        text = f"{value:.{digits}g}"
        if torch.equal(torch.tensor(float(text), dtype=tensor.dtype), tensor.cpu()):
            return repr(float(text))
    return repr(value)


def statements(step: Step, used: set[str], *, exact: bool) -> Iterator[str]:
    """One operation as Python. ``used`` are the names that later lines read."""
    for old, new in step.written:
        yield f"{new} = {old}.clone()"
    renamed = dict(step.written)

    def rename(leaf: Any) -> Any:
        return Ref(renamed.get(leaf.name, leaf.name)) if isinstance(leaf, Ref) else leaf

    args = [source(value) for value in map_leaves(list(step.args), rename)]
    kwargs = {key: source(value) for key, value in map_leaves(dict(step.kwargs), rename).items()}
    results = len([name for name in step.results if name in used])
    plain = None if exact else readable_call(step.operation, args, kwargs, results=results)
    given = ", ".join([*args, *(f"{key}={value}" for key, value in kwargs.items())])
    call = plain or f"torch.ops.{step.operation}({given})"
    names = [name or "_" for name in step.results]
    if names == ["_"]:
        names = []
    if plain is not None and only_first(step.operation, plain):
        names = names[:1]
    if not names:
        yield call
    elif len(names) == 1 and not _returns_list(step.operation):
        yield f"{names[0]} = {call}"
    else:
        yield f"{', '.join(names)}{',' if len(names) == 1 else ''} = {call}"


def _returns_list(operation: str) -> bool:
    return operation.startswith("aten._foreach_")


def _arguments(program: Program) -> list[str]:
    gradients = {name for name in program.gradients if name is not None}
    used = {name for step in program.steps for name in refs_in([list(step.args), dict(step.kwargs)])}
    return [name for name in program.inputs if name not in gradients or name in used]


def _returned(program: Program) -> list[str]:
    if not program.backward:
        return [program.target]
    return [output for output, gradient in zip(program.outputs, program.gradients, strict=True) if gradient]


def _used(program: Program) -> set[str]:
    """Every value that an operation or the end of the script reads."""
    read = {name for step in program.steps for name in refs_in([list(step.args), dict(step.kwargs)])}
    return read | set(_returned(program))


def _ending(program: Program, names: str, compiled: str | None) -> Sequence[str]:
    """The lines that check the result and fail."""
    arguments = ", ".join(_arguments(program))
    word = WORDS.get(program.kind, "NaN")
    finite = 'assert all(bool(torch.isfinite(one).all()) for one in inputs()), "an input is not finite"'
    lines = [finite, f"{names} = inputs()"]
    if compiled is not None:
        backend = "" if compiled == "inductor" else f', backend="{compiled}"'
        lines += [
            f"eager = forward({arguments})",
            'assert bool(torch.isfinite(eager).all()), "it is not finite in eager mode, either"',
            f"found = torch.compile(forward{backend})({arguments})",
            'print("torch", torch.__version__, "eager", eager, "compiled", found)',
            f'assert bool(torch.isfinite(found).all()), "{word} {FAULT}, {COMPILED_FAULT}"',
        ]
        return lines
    if program.backward:
        gradients = [name for name in program.gradients if name]
        results = "result" if len(gradients) == 1 else "*results"
        lines += [
            f"{program.target}.requires_grad_()",
            f"{results.removeprefix('*')} = forward({arguments})",
            f"torch.autograd.backward([{results}], [{', '.join(gradients)}])",
            f"found = {program.target}.grad",
        ]
    else:
        lines.append(f"found = forward({arguments})")
    lines.append('print("torch", torch.__version__, "made", found)')
    test = {"NaN": "isnan", "+Inf": "isposinf", "-Inf": "isneginf"}[word]
    lines.append(f'assert not bool(torch.{test}(found).any()), "{word} {FAULT}"')
    return lines


def _uses_device(program: Program) -> bool:
    return any("device" in source(list(step.args) + list(step.kwargs.values())) for step in program.steps)
