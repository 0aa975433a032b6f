"""The script's modes and profilers get the operations of the script alone."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.profiler import profile
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from steadytrain.capture.hooks.unseen import Unseen
from watching import watching

STEPS = 4


class Functions(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen[getattr(func, "__name__", str(func))] += 1
        return func(*args, **(kwargs or {}))


class Operations(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen[str(func)] += 1
        return func(*args, **(kwargs or {}))


class Profile:
    def __init__(self) -> None:
        self._profile = profile()
        self.seen: Counter[str] = Counter()

    def __enter__(self) -> None:
        self._profile.__enter__()

    def __exit__(self, *exception: Any) -> None:
        self._profile.__exit__(*exception)
        self.seen.update(event.name for event in self._profile.function_events if event.name.startswith("aten::"))


def counted(kind: type[Any], folder: Path | None) -> Counter[str]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.1), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    inputs = torch.randn(8, 4)
    mode = kind()
    with watching(folder, "stop") if folder is not None else nullcontext(), mode:
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = model(inputs).pow(2).mean()
            loss.backward()
            optimizer.step()
    return Counter(mode.seen)


@pytest.mark.parametrize("kind", [Functions, Operations, Profile])
def test_a_watch_adds_no_operation_to_what_the_script_counts(tmp_path: Path, kind: type[Any]) -> None:
    assert counted(kind, tmp_path / "run") == counted(kind, None)


def test_an_error_inside_leaves_the_modes_as_they_were() -> None:
    functions, unseen = Functions(), Unseen()
    with functions:
        with pytest.raises(RuntimeError), unseen, unseen:
            torch.ones(2).abs().view(3)
        assert functions.seen == Counter()
        torch.ones(2).abs()
    assert functions.seen["abs"] == 1
