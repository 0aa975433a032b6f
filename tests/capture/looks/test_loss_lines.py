"""The line of a loss is that of its call, not that of the backward."""

from __future__ import annotations

import linecache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from steadytrain.capture.looks import loss_lines
from steadytrain.capture.step.script_frames import user_frames

HEAD = """
def criterion(*given):
    return Loss()
def scale(loss):
    return loss
"""
CALLED = {
    "plain": ("loss = criterion(1)\nloss.backward()\n", 1),
    "scaled after it": ("loss = criterion(1)\nloss = loss / 4\nloss.backward()\n", 1),
    "scaled in place": ("loss = criterion(1)\nloss /= 4\n(loss / 2).backward()\n", 1),
    "through a scaler": ("loss = criterion(1)\nscale(loss).backward()\n", 1),
    "with outputs": ("out, loss = 1, criterion(1)\nloss.backward()\n", 1),
    "over two lines": ("loss = (\n    criterion(1)\n)\nloss.backward()\n", 2),
    "in a function": ("def step():\n    loss = criterion(1)\n    loss.backward()\nstep()\n", 2),
    "one of two": ("if 1 > 0:\n    loss = criterion(1)\nelse:\n    loss = criterion(2)\nloss.backward()\n", 5),
    "no call": ("one = criterion(1)\nloss = one\nloss.backward()\n", 3),
    "a sum": ("one = criterion(1)\nloss = one + one\nloss.backward()\n", 2),
    "at once": ("criterion(1).backward()\n", 1),
    "of an attribute": ("class out: loss = criterion(1)\nout.loss.backward()\n", 2),
}


class Loss:
    """Stands in for a tensor whose backward begins."""

    def __init__(self, places: list[str]) -> None:
        self.places = places

    def backward(self) -> None:
        self.places.append(loss_lines.loss_place())

    def __add__(self, other: Loss) -> Loss:
        return self

    def __truediv__(self, other: float) -> Loss:
        return self


@pytest.mark.parametrize("name", CALLED)
def test_the_call_of_the_loss_is_named_if_it_is_the_only_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def frames_of_script() -> Any:
        return tuple(one for one in user_frames() if one.code.co_filename.endswith("train.py"))

    monkeypatch.setattr(loss_lines, "user_frames", frames_of_script)
    body, line = CALLED[name]
    script = tmp_path / "train.py"
    script.write_text(HEAD + body, encoding="utf-8")
    linecache.checkcache(str(script))
    places: list[str] = []
    namespace: dict[str, Any] = {"Loss": lambda: Loss(places)}
    exec(compile(HEAD + body, str(script), "exec"), namespace)
    (place,) = places
    assert place == f"train.py:{line + HEAD.count(chr(10))}"
