"""A NaN that a line above the model's call made: that line runs again, if this changes nothing of the script."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402 (torch is optional for an install of steadytrain)

from steadytrain.core.incident import Finding  # noqa: E402
from steadytrain.storage.bundle import open_bundle  # noqa: E402
from steadytrain.storage.run_folder import open_run  # noqa: E402
from steadytrain.tracing.investigator import LINES_RERUN  # noqa: E402
from watching import stopping  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:std.*degrees of freedom")
BAD_STEP = 3


def finding_of(runs_dir: Path) -> Finding:
    (path,) = open_run(runs_dir / "run").incidents
    return open_bundle(path).finding


def made(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01)


def test_only_the_line_that_made_it_runs_again_of_a_step_in_several_methods(tmp_path: Path) -> None:
    class Agent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.value, self.policy, self.data = nn.Linear(4, 1), nn.Linear(4, 2), torch.empty(0)

        def taken(self) -> Tensor:
            rows, self.data = self.data, torch.empty(0)
            return rows

        def chances(self, rows: Tensor) -> Tensor:
            return self.policy(rows).softmax(1)

        def learn(self, optimizer: torch.optim.Optimizer) -> None:
            rows = self.taken()
            error = rows.sum(1, keepdim=True) - self.value(rows)
            advantage = (error - error.mean()) / error.std()
            chosen = self.chances(rows)[:, :1]
            loss = -chosen.log() * advantage.detach() + (self.value(rows) - 1).square()
            optimizer.zero_grad()
            loss.mean().backward()
            optimizer.step()

    agent = Agent()
    optimizer = made(agent)
    with stopping(agent, optimizer, tmp_path):
        for step in range(1, 9):
            agent.data = torch.randn(1 if step == BAD_STEP else 6, 4)
            agent.learn(optimizer)
    located = finding_of(tmp_path).located
    assert located is not None
    assert (located.operation, located.code) == (
        "aten.std.correction",
        "advantage = (error - error.mean()) / error.std()",
    )


def test_a_line_that_reads_what_was_changed_since_does_not_run_again(tmp_path: Path) -> None:
    model = nn.Linear(4, 1)
    optimizer = made(model)

    def train(rows: Tensor) -> None:
        scale = rows.sum(1)
        weights = scale / scale.std()
        scale = scale.square()
        loss = (model(rows)[:, 0] * weights * scale).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    with stopping(model, optimizer, tmp_path):
        for step in range(1, BAD_STEP + 1):
            train(torch.randn(1 if step == BAD_STEP else 6, 4))
    assert finding_of(tmp_path).why.startswith("a tensor from before the re-run held NaN")


@pytest.mark.parametrize("calls", [1, 2])
def test_a_nan_that_a_line_above_the_model_call_made_is_named_with_that_line(tmp_path: Path, calls: int) -> None:
    model = nn.Linear(4, 1)
    optimizer = made(model)

    def train(rows: Tensor) -> None:
        error = model(rows)[:, 0] if calls == 2 else rows.sum(1)
        advantage = (error - error.mean()) / error.std()
        chances = torch.sigmoid(model(rows)[:, 0])
        loss = -(chances.log() * advantage.detach()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    with stopping(model, optimizer, tmp_path):
        for step in range(1, 9):
            train(torch.randn(1 if step == BAD_STEP else 6, 4))
    located = finding_of(tmp_path).located
    assert located is not None
    assert (located.operation, located.method) == ("aten.std.correction", LINES_RERUN)
    assert located.code == "advantage = (error - error.mean()) / error.std()"


def test_a_method_of_the_scripts_own_object_above_the_model_call_is_not_called_again(tmp_path: Path) -> None:
    model = nn.Linear(4, 1)
    optimizer, taken = made(model), []

    class Buffer:
        def take(self, rows: Tensor) -> Tensor:
            taken.append(len(rows))
            return rows[:, 0] * rows.std(0)[0]

    buffer = Buffer()

    def train(rows: Tensor) -> None:
        weights = buffer.take(rows)
        loss = (model(rows)[:, 0] * weights).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    with stopping(model, optimizer, tmp_path):
        for step in range(1, BAD_STEP + 1):
            train(torch.randn(1 if step == BAD_STEP else 6, 4))
    assert taken == [6] * (BAD_STEP - 1) + [1]
    assert finding_of(tmp_path).why.startswith("a tensor from before the re-run held NaN")


def test_lines_that_call_the_model_several_times_name_no_operation_of_other_inputs(tmp_path: Path) -> None:
    model = nn.Linear(4, 1)
    optimizer = made(model)

    def train(rows: Tensor, others: Tensor) -> None:
        weights = model(others).detach().std() * rows[:, 0]
        loss = (model(rows)[:, 0] * weights).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    with stopping(model, optimizer, tmp_path):
        for step in range(1, 9):
            train(torch.randn(6, 4), torch.randn(1 if step == BAD_STEP else 6, 4))
    found = finding_of(tmp_path)
    assert found.located is None
    assert found.why.startswith("a tensor from before the re-run held NaN")
