"""The input of a later model call, which the script computed by an earlier one, is no input of the script."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from scripts import run_script  # noqa: E402
from steadytrain.storage.bundle import open_bundle  # noqa: E402
from steadytrain.survey.input_facts import Batches  # noqa: E402


def bad_inputs(*given: torch.Tensor) -> list[str]:
    batches = Batches()
    for one in given:
        batches.called(5, (one,), {})
    return [entry["input"] for entry in batches.finish()["batch_nonfinite"]]


def test_what_a_model_computed_is_not_the_batch() -> None:
    batch, weight = torch.tensor([[1.0, float("nan")]]), torch.ones(2, requires_grad=True)
    assert bad_inputs(batch) == ["0"]
    assert bad_inputs(torch.ones(1, 2), batch * weight) == []


@pytest.mark.parametrize(("of_batch", "scale"), [(1.0, 1.0), (40.0, 40.0)], ids=["a head's input", "the batch"])
def test_what_a_model_computed_does_not_make_a_batch_large(of_batch: float, scale: float) -> None:
    batches, weight = Batches(), torch.ones(2, requires_grad=True)
    for step in range(12):
        last = step == 11
        batches.called(step, (torch.ones(3, 2) * (of_batch if last else 1.0),), {})
        batches.called(step, (torch.ones(3, 2) * weight * (1e6 if last else 1.0),), {})
    batches.mark(11)
    assert batches.finish()["batch_scale"] == scale


def test_targets_that_a_loader_gives_are_read_with_the_step_that_uses_them() -> None:
    batches, clean = Batches(), torch.ones(3, 2)
    for step, bad in ((4, ()), (5, (1,)), (6, ())):
        targets = torch.ones(3, 1)
        targets[list(bad)] = float("nan")
        batches.fetched(0, [clean, {"y": targets, "n": torch.ones(3, dtype=torch.long)}])
        batches.called(step, (clean,), {})
    assert batches.finish()["batch_nonfinite"] == [
        {"step": 5, "input": "element 1.y of the loader's batch", "rows": [1], "count": 1}
    ]


def test_missing_targets_of_earlier_steps_did_no_harm() -> None:
    batches, clean = Batches(), torch.ones(3, 2)
    for step in (4, 5):
        batches.fetched(0, (clean, torch.tensor([1.0, float("nan"), 1.0])))
        batches.called(step, (clean + step,), {})
    batches.mark(5)
    assert batches.finish()["batch_nonfinite"] == []


def test_an_input_of_the_loader_is_named_once() -> None:
    batches, bad = Batches(), torch.tensor([[1.0, float("nan")]])
    batches.fetched(0, (bad, torch.ones(1)))
    batches.called(5, (bad,), {})
    assert [entry["input"] for entry in batches.finish()["batch_nonfinite"]] == ["0"]


SCRIPT = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    encoder, decoder = nn.Linear(6, 8), nn.Linear(4, 6)
    model = nn.ModuleList([encoder, decoder])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(40):
        x = torch.randn(16, 6) * (1e4 if step == 30 else 1.0)
        mean, log_variance = encoder(x).chunk(2, 1)
        z = mean + torch.exp(0.5 * log_variance)
        loss = ((decoder(z) - x) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.slow
def test_the_operation_between_two_model_calls_is_named(tmp_path: Path) -> None:
    outcome = run_script(tmp_path, SCRIPT, "--policy", "stop")
    (bundle,) = (outcome.run_dir / "incidents").glob("step-*31")
    found = open_bundle(bundle).incident.finding
    assert found.located is not None, found.why
    assert found.located.operation == "aten.exp.default"
    assert (found.located.code or "").startswith("z = mean")
