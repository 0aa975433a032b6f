"""NaN or Inf in the batch of the step in which the script raised: its tensor, its row, its place in the data set."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

from scripts import call, run_script  # noqa: E402
from steadytrain.capture.incident.crash import Moment, evidence_of, write_evidence  # noqa: E402
from steadytrain.core.incident import Samples  # noqa: E402
from steadytrain.diagnosis.cause import CERTAIN  # noqa: E402
from steadytrain.diagnosis.cause_catalog import causes  # noqa: E402
from steadytrain.experiments.crash_facts import facts_of_crash  # noqa: E402
from steadytrain.storage.run_folder import Run  # noqa: E402
from trial_cases import finite_case  # noqa: E402

BAD = torch.tensor([0.0, 1.0, float("nan"), 1.0])
DRAWN = (Samples(0, "Clicks", (7, 3, 9, 4)),)


def refused() -> None:
    functional.binary_cross_entropy(torch.full((4,), 0.5), BAD)


def asserted() -> None:
    loss = torch.tensor(float("nan"))
    assert torch.isfinite(loss)


def misshapen() -> None:
    torch.randn(2, 3) @ torch.randn(4, 5)


def interrupted() -> None:
    raise KeyboardInterrupt("loss is nan")


def documents(call: Callable[[], None], **known: Any) -> dict[str, dict[str, Any]]:
    try:
        call()
    except BaseException as error:
        return evidence_of(error, Moment("now", 0.0, step=3, **known), disk=Path("/tmp"))
    raise AssertionError("it raised nothing")


@pytest.mark.parametrize("call", [refused, asserted])
def test_the_row_of_the_batch_and_its_sample(call: Callable[[], None]) -> None:
    found = documents(call, fields=[("0", torch.ones(4, 2)), ("1", BAD)], drawn=DRAWN)["nonfinite-batch"]
    assert (found["from"], found["tensor"], found["count"], found["nan"]) == ("batch", "1", 1, 1)
    assert found["rows"] == [{"row": 2, "sample": "Clicks[9]"}]


def test_without_a_loader_the_targets_of_the_loss_are_looked_at() -> None:
    found = documents(refused, inputs=[("0.0", torch.ones(4, 2))])["nonfinite-batch"]
    assert (found["from"], found["tensor"], found["rows"]) == ("call", "target", [{"row": 2, "sample": None}])


@pytest.mark.parametrize(
    ("call", "fields"),
    [(misshapen, [("1", BAD)]), (interrupted, [("1", BAD)]), (refused, [("1", torch.ones(4))])],
    ids=["of shapes", "of a user", "the script made it"],
)
def test_other_errors_and_finite_batches_leave_no_evidence(call: Callable[[], None], fields: list[Any]) -> None:
    assert "nonfinite-batch" not in documents(call, fields=fields)


def test_the_evidence_is_a_broken_rule_of_the_cause(tmp_path: Path) -> None:
    (told,) = write_evidence(tmp_path, documents(refused, fields=[("1", BAD)], drawn=DRAWN))
    assert told.startswith("the batch held NaN in row 2, Clicks[9]: the evidence is in ")
    run: Run = type("Folder", (Run,), {"__init__": lambda self: None})()
    object.__setattr__(run, "path", tmp_path)
    object.__setattr__(run, "facts", {})
    case = finite_case(symptom=None, symptoms=(), facts=facts_of_crash(run))
    signature = causes()["nonfinite-input"].signature(case)
    assert not signature.ruled_out
    (sign,) = [one for one in signature.signs if one.invariant]
    assert sign.weight == CERTAIN
    assert sign.what.startswith(
        "element 1 of the loader's batch held NaN in row 2 (Clicks[9]) of step 4, and the script ended"
    )
    assert signature.batch_rows == (2,)


SCRIPT = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset, random_split

    torch.manual_seed(0)
    x = torch.randn(400, 4)
    y = (x[:, 0] > 0).float()
    y[123] = float("nan")
    part, _ = random_split(TensorDataset(x, y), (390, 10))
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1), nn.Sigmoid())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for inputs, targets in DataLoader(part, 10):
        loss = nn.functional.binary_cross_entropy(model(inputs)[:, 0], targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.slow
def test_a_target_that_torch_refuses_is_named_with_its_row(tmp_path: Path) -> None:
    seen = run_script(tmp_path, SCRIPT)
    assert seen.status == 1
    assert "the batch held NaN in row " in seen.told
    assert "TensorDataset[123]" in seen.told
    shown = " ".join(call("show", seen.run_dir, folder=tmp_path).stdout.split())
    assert "The script was ended by RuntimeError in step " in shown
    assert "all elements of target should be between 0 and 1" in shown
    found = json.loads(call("diagnose", seen.run_dir, "--json", folder=tmp_path).stdout)
    assert found["verdict"] == "nonfinite-input"
    assert "TensorDataset[123]" in json.dumps(found["diagnoses"][0])
    assert "unshuffled-data" not in [one["cause"] for one in found["diagnoses"] if one["status"] != "refuted"]


TURNS = """
import torch
from torch import nn
torch.manual_seed(0)
one, two = nn.Linear(3, 1), nn.Linear(3, 1)
first, second = torch.optim.SGD(one.parameters(), 0.1), torch.optim.SGD(two.parameters(), 0.1)
for step in range(1, 30):
    for model, optimizer in ((one, first), (two, second)):
        x = torch.randn(8, 3 - (step == 21 and model is two))
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
"""


@pytest.mark.slow
def test_of_optimizers_that_take_turns_the_end_names_the_steps_of_both(tmp_path: Path) -> None:
    ended = run_script(tmp_path, TURNS)
    assert "ended by RuntimeError after step 21 of main and 20 of optimizer-2 at " in ended.told
