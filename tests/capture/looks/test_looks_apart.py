"""A look that fails is left out alone: all others go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from steadytrain.capture.hooks.fail_open import Guard  # noqa: E402
from steadytrain.capture.looks import script_look  # noqa: E402
from steadytrain.capture.looks.apart import Apart  # noqa: E402
from watching import watching  # noqa: E402


class Learner(nn.Module):
    """Overrides ``parameters`` without its argument, as a learner for meta-learning does."""

    def __init__(self) -> None:
        super().__init__()
        self.variables = nn.ParameterList([nn.Parameter(0.3 * torch.randn(4, 8)), nn.Parameter(torch.zeros(4))])

    def forward(self, rows: Tensor) -> Tensor:
        return functional.linear(rows, self.variables[0], self.variables[1])

    def parameters(self) -> nn.ParameterList:  # type: ignore[override]
        return self.variables


class Meta(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = Learner()

    def forward(self, rows: Tensor) -> Tensor:
        out: Tensor = self.net(rows)
        return out


def carried_over(folder: Path) -> list[str]:
    """The reports about a loop that never clears its gradients."""
    torch.manual_seed(0)
    model = Meta()
    optimizer = torch.optim.Adam(model.net.parameters(), lr=1e-2)
    with watching(folder, "observe") as watcher:
        for _ in range(80):
            rows = torch.randn(32, 8)
            functional.cross_entropy(model(rows), rows[:, :4].argmax(1)).backward()
            optimizer.step()
    return [one.name for one in watcher.symptoms if one.name == "gradients-carried-over"]


def test_a_module_that_overrides_parameters(tmp_path: Path) -> None:
    assert carried_over(tmp_path) == ["gradients-carried-over"]


def test_a_look_that_fails_takes_no_other_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: object) -> Iterator[tuple[str, float]]:
        raise ValueError("ours")
        yield "", 0.0

    monkeypatch.setattr(Guard, "reraise", False)
    monkeypatch.setattr(script_look, "counted_rows", fails)
    assert carried_over(tmp_path) == ["gradients-carried-over"]


def test_each_failure_is_reported_once() -> None:
    told: list[str] = []
    apart = Apart(lambda place, error: told.append(f"{place}: {error}"))

    def bad(*arguments: object) -> dict[str, float]:
        raise ValueError("bad")

    def good(value: float) -> dict[str, float]:
        return {"one": value}

    assert [apart(bad), apart(bad), apart(good, 2.0)] == [{}, {}, {"one": 2.0}]
    assert told == ["looking at what the script does: bad"]
