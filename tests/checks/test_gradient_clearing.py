"""A missing zero_grad: gradients that each backward finds full, from one update to the next."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from check_outcomes import outcome  # noqa: E402
from healthy_models import tabular  # noqa: E402
from torch import nn  # noqa: E402

from scripts import call  # noqa: E402
from steadytrain.preflight_runs.carried_gradients import CarriedGradients  # noqa: E402


def follow(clear: Callable[[int, nn.Module], None], *, backwards: int = 1, steps: int = 3) -> list[bool | None]:
    """What is said at each update of a loop that calls ``clear`` before each backward, with its number from 0."""
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    stream: Any = SimpleNamespace(parameters=list(model.parameters()))
    carried, said = CarriedGradients(), []
    for _ in range(steps):
        for number in range(backwards):
            clear(number, model)
            carried.backward_begins()
            model(torch.randn(3, 2)).sum().backward()
        said.append(carried.gate(stream))
    return said


def replaced(number: int, model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad = None if parameter.grad is None else torch.ones_like(parameter.grad)


def test_gradients_that_nothing_clears_are_carried_over() -> None:
    assert follow(lambda number, model: None) == [None, True, True]


def test_gradients_that_are_cleared_are_not() -> None:
    assert follow(lambda number, model: model.zero_grad()) == [None, False, False]
    assert follow(lambda number, model: model.zero_grad(set_to_none=False)) == [None, False, False]


def test_accumulation_that_clears_before_its_first_backward_carries_nothing() -> None:
    assert follow(lambda number, model: model.zero_grad() if number == 0 else None, backwards=2) == [None, False, False]


def test_a_gradient_that_the_script_sets_after_backward_is_its_own() -> None:
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    stream: Any = SimpleNamespace(parameters=list(model.parameters()))
    carried, said = CarriedGradients(), []
    for _ in range(2):
        carried.backward_begins()
        model(torch.randn(3, 2)).sum().backward()
        replaced(0, model)
        said.append(carried.gate(stream))
    assert said == [None, False]


@pytest.mark.parametrize(
    ("carried", "status"),
    [((None, True, True), "fail"), ((None, False), "pass"), ((None, False, True), "warn"), ((None,), "not-run")],
)
def test_what_the_check_says(carried: tuple[bool | None, ...], status: str) -> None:
    steps = [{"step": number, "carried_over": one} for number, one in enumerate(carried, start=1)]
    assert outcome("gradient-clearing", tabular(), observed={"steps": steps}).status == status


def of_two(*carried: tuple[str, bool]) -> Any:
    steps = [
        {"step": at, "carried_over": one, "stream": name, "optimizer": name}
        for at, (name, one) in enumerate(carried, start=3)
    ]
    return outcome("gradient-clearing", tabular(), observed={"steps": steps})


def test_of_several_optimizers_one_alone_may_fail() -> None:
    """A GAN that clears the gradients of the generator only."""
    found = of_two(("opt_d", True), ("opt_g", False), ("opt_d", True), ("opt_g", False))
    assert (found.status, found.message) == (
        "fail",
        "gradients of opt_d are not cleared: each of its 2 updates still held those of its update before, the first "
        "at step 3",
    )
    some = of_two(("opt_d", True), ("opt_g", False), ("opt_d", False), ("opt_g", False))
    assert (some.status, some.message) == (
        "warn",
        "1 of 4 updates (opt_d) still held the gradients of the update before",
    )
    assert of_two(("opt_d", True), ("opt_g", False), ("opt_g", False)).status == "warn"


TRAINING = """
import torch
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(6):
    x, y = torch.randn(8, 4), torch.randint(0, 2, (8,))
    loss = torch.nn.functional.cross_entropy(model(x), y)
    CLEAR
    loss.backward()
    optimizer.step()
"""


GAN = """
import torch
from torch.nn import functional
fake, judge = torch.nn.Linear(4, 2), torch.nn.Linear(2, 1)
opt_g, opt_d = (torch.optim.SGD(one.parameters(), lr=0.01) for one in (fake, judge))
for step in range(6):
    (judge(fake(torch.randn(8, 4)).detach()).mean() - judge(torch.randn(8, 2)).mean()).backward()
    opt_d.step()
    opt_g.zero_grad()
    (-judge(fake(torch.randn(8, 4))).mean()).backward()
    opt_g.step()
"""


@pytest.mark.slow
def test_a_gan_that_clears_one_model_only_fails_the_preflight(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(GAN)
    done = call("preflight", "--json", "--checks", "gradient-clearing", "train.py", folder=tmp_path)
    (entry,) = json.loads(done.stdout)["checks"]
    assert (entry["status"], done.returncode) == ("fail", 1), entry
    assert entry["message"].startswith("gradients of opt_d are not cleared: each of its ")


@pytest.mark.slow
@pytest.mark.parametrize(("clear", "status"), [("pass", "fail"), ("optimizer.zero_grad()", "pass")])
def test_a_script_without_zero_grad_fails_the_preflight(clear: str, status: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING.replace("CLEAR", clear))
    done = call("preflight", "--json", "--checks", "gradient-clearing", "train.py", folder=tmp_path)
    document = json.loads(done.stdout)
    (entry,) = document["checks"]
    assert (entry["status"], done.returncode) == (status, int(status == "fail")), entry
    if status == "fail":
        assert entry["message"] == "gradients are not cleared: step 2 still held those of the step before"
        assert "zero_grad" in entry["next"]
