"""A script at its backward, for the tests of lines that run again."""

from __future__ import annotations

import linecache
import textwrap
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402 (torch is optional for an install of steadytrain)

from steadytrain.capture.step.script_frames import FrameLine, LoopLines, loop_lines, user_frames  # noqa: E402
from steadytrain.tracing.line_rerun import CannotRunAgainError, compile_lines, run_lines  # noqa: E402

HEAD = """
import contextlib
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
model = nn.Linear(3, 1)
x, y = torch.randn(4, 3), torch.randn(4, 1)
log, counts, step = [], {}, 5
loss_fn = nn.MSELoss()

class Scaler:
    def scale(self, loss):
        return loss * 4

class Accelerator:
    def backward(self, loss, **kwargs):
        loss.backward(**kwargs)

scaler, accelerator = Scaler(), Accelerator()

def compute(model, batch):
    return loss_fn(model(batch[0]), batch[1])
"""


class Scene:
    """A script that is stopped inside backward: what ``loop_lines`` finds there, and what the lines give."""

    def __init__(self, folder: Path, body: str) -> None:
        path = folder / "script.py"
        path.write_text(HEAD + textwrap.dedent(body), encoding="utf-8")
        linecache.checkcache(str(path))
        self.namespace: dict[str, Any] = {"__name__": "__main__"}
        self.seen: list[tuple[float, float | str]] = []
        self.unchanged = True
        forward: list[tuple[FrameLine, ...]] = []

        def called(module: nn.Module, args: Any) -> None:
            if any(True for _ in module.parameters()):
                forward.append(user_frames())

        before = torch.autograd.backward

        def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
            if not self.seen:
                self._again(tensors, loop_lines(forward[-1], user_frames()))
            before(tensors, *args, **kwargs)

        handle = nn.modules.module.register_module_forward_pre_hook(called)
        torch.autograd.backward = backward
        try:
            exec(compile(path.read_text(), str(path), "exec"), self.namespace)
        finally:
            torch.autograd.backward = before
            handle.remove()

    def _again(self, loss: Any, loop: LoopLines | None) -> None:
        assert loop is not None
        state = torch.get_rng_state()
        variables = {**loop.frame.f_globals, **loop.frame.f_locals}
        versions = {name: value._version for name, value in variables.items() if isinstance(value, torch.Tensor)}
        sizes = {name: len(value) for name, value in variables.items() if isinstance(value, (list, dict))}
        try:
            again: float | str = run_lines(loop, compile_lines(loop)).item()
        except CannotRunAgainError as refusal:
            again = str(refusal)
        after = {**loop.frame.f_globals, **loop.frame.f_locals}
        self.unchanged = (
            list(after) == list(variables)
            and all(after[name] is value for name, value in variables.items())
            and all(after[name]._version == version for name, version in versions.items())
            and all(len(after[name]) == size for name, size in sizes.items() if name != "variables")
        )
        torch.set_rng_state(state)
        self.seen.append((loss.item(), again))
