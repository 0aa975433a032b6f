"""Checkpoints of loops of one's own and of torch.distributed.checkpoint against the run that saved them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from checkpoint_runs import EVERY, audited  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from torch import nn  # noqa: E402

import steadytrain  # noqa: E402
from scripts import run_script  # noqa: E402
from steadytrain.storage.tape_files import find_snapshots  # noqa: E402
from watching import stopping  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # torch warns of its own distributed checkpoints


def differences(document: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(entry["kind"], entry["part"], entry["name"]) for entry in document["differences"]]


@pytest.mark.parametrize("name", ["step-3.pt", "step-6.pt", "distributed", "model.safetensors", "bare.pt"])
def test_what_was_saved_is_what_the_run_had(home: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, document = audited(home / name, capsys, "--run", str(home / "run"))
    assert (status, differences(document)) == (0, [])
    weights = document["parts"][0]
    assert weights == {"part": "weights", "held": 10, "expected": 10, "agree": 10}
    if name.startswith("step") or name == "distributed":
        parts = {part["part"]: (part["held"], part["agree"]) for part in document["parts"]}
        assert parts["moments"] == (14, 14)
        assert parts["counters"] == (7, 7)
        assert parts["scheduler"][1] > 3
        assert parts["scaler"][1] > 2


def swap_moments(content: dict[str, Any]) -> None:
    state = content["optimizer"]["state"]
    state[0]["exp_avg"], state[4]["exp_avg"] = state[4]["exp_avg"], state[0]["exp_avg"]


def cast_weights(content: dict[str, Any]) -> None:
    content["model"]["0.weight"] = content["model"]["0.weight"].bfloat16()


def round_weights(content: dict[str, Any]) -> None:
    content["model"]["0.weight"] = content["model"]["0.weight"].bfloat16().float()


def stale_counters(content: dict[str, Any]) -> None:
    for state in content["optimizer"]["state"].values():
        state["step"] = state["step"] - EVERY


FAULTS: dict[str, tuple[Callable[[dict[str, Any]], Any], set[tuple[str, str, str]]]] = {
    "optimizer state missing": (
        lambda content: content.pop("optimizer"),
        {("missing", part, part) for part in ("moments", "counters", "settings")},
    ),
    "state emptied": (
        lambda content: content["optimizer"]["state"].clear(),
        {("missing", "moments", "moments"), ("missing", "counters", "counters")},
    ),
    "moments swapped": (
        swap_moments,
        {("swapped", "moments", "0.weight/exp_avg"), ("swapped", "moments", "2.weight/exp_avg")},
    ),
    "betas changed": (
        lambda content: content["optimizer"]["param_groups"][0].update(betas=(0.9, 0.95)),
        {("changed", "settings", "betas")},
    ),
    "epsilon changed": (
        lambda content: content["optimizer"]["param_groups"][0].update(eps=1e-6),
        {("changed", "settings", "eps")},
    ),
    "stale counter": (
        lambda content: content["optimizer"]["state"][4].update(step=torch.tensor(1.0)),
        {("stale", "counters", "2.weight")},
    ),
    "bfloat16 weights": (cast_weights, {("cast", "weights", "0.weight")}),
    "weights through bfloat16": (round_weights, {("cast", "weights", "0.weight")}),
    "weight missing": (lambda content: content["model"].pop("3.weight"), {("missing", "weights", "3.weight")}),
    "weight reshaped": (
        lambda content: content["model"].update({"0.weight": content["model"]["0.weight"].reshape(4, 16)}),
        {("reshaped", "weights", "0.weight")},
    ),
    "scaler missing": (lambda content: content.pop("scaler"), {("missing", "scaler", "scaler")}),
    "scale changed": (lambda content: content["scaler"].update(scale=1.0), {("changed", "scaler", "scale")}),
    "scheduler missing": (lambda content: content.pop("scheduler"), {("missing", "scheduler", "scheduler")}),
    "other random state": (
        lambda content: content.update(rng={"torch": torch.Generator().manual_seed(8).get_state()}),
        {("changed", "random", "torch")},
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named(home: Path, tmp_path: Path, fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    spoil, expected = FAULTS[fault]
    content = torch.load(home / "step-6.pt", weights_only=True)
    spoil(content)
    torch.save(content, tmp_path / "spoiled.pt")
    status, document = audited(tmp_path / "spoiled.pt", capsys, "--run", str(home / "run"))
    assert (status, set(differences(document))) == (1, expected)
    if fault != "scaler missing":  # by themselves two checkpoints say the same
        status, document = audited(tmp_path / "spoiled.pt", capsys, "--against", str(home / "step-6.pt"))
        assert status == 1
        assert {entry[1:] for entry in expected} <= {entry[1:] for entry in differences(document)}


def test_all_counters_stale(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = torch.load(home / "step-6.pt", weights_only=True)
    stale_counters(content)
    torch.save(content, tmp_path / "spoiled.pt")
    _, document = audited(tmp_path / "spoiled.pt", capsys, "--run", str(home / "run"))
    assert len([entry for entry in differences(document) if entry[:2] == ("stale", "counters")]) == 7
    status, document = audited(tmp_path / "spoiled.pt", capsys)  # seen without the run as well
    assert (status, differences(document)) == (1, [("inconsistent", "counters", "all")])


def test_the_scheduler_of_an_epoch_before(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = torch.load(home / "step-6.pt", weights_only=True)
    content["scheduler"] = torch.load(home / "step-3.pt", weights_only=True)["scheduler"]
    torch.save(content, tmp_path / "spoiled.pt")
    _, document = audited(tmp_path / "spoiled.pt", capsys, "--run", str(home / "run"))
    assert ("stale", "scheduler", "last_epoch") in differences(document)
    assert {part for _, part, _ in differences(document)} == {"scheduler"}
    _, document = audited(tmp_path / "spoiled.pt", capsys)
    assert [entry[:2] for entry in differences(document)] == [("inconsistent", "scheduler")]


def test_weights_of_an_earlier_step(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = torch.load(home / "step-6.pt", weights_only=True)
    content["model"] = torch.load(home / "step-3.pt", weights_only=True)["model"]
    torch.save(content, tmp_path / "spoiled.pt")
    _, document = audited(tmp_path / "spoiled.pt", capsys, "--run", str(home / "run"))
    assert {entry[:2] for entry in differences(document)} == {("stale", "weights")}
    assert any("as it was at step 3" in entry["message"] for entry in document["differences"])


def test_two_checkpoints_of_one_run(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, document = audited(home / "step-6.pt", capsys, "--against", str(home / "step-3.pt"))
    assert (status, differences(document)) == (0, [])
    assert any("steps differ" in note for note in document["notes"])


def test_a_run_that_saved_nothing_is_asked_for_its_norms(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(home / "run", tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "saved")
    status, document = audited(home / "step-6.pt", capsys, "--run", str(tmp_path / "run"))
    assert (status, differences(document)) == (0, [])
    assert any("kept no fingerprint" in note for note in document["notes"])
    content = torch.load(home / "step-6.pt", weights_only=True)
    content["optimizer"]["param_groups"][0].update(betas=(0.9, 0.95))
    torch.save(content, tmp_path / "spoiled.pt")
    _, document = audited(tmp_path / "spoiled.pt", capsys, "--run", str(tmp_path / "run"))
    assert differences(document) == [("changed", "settings", "betas")]


def test_the_state_of_an_incident_is_a_reference_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    with stopping(network, optimizer, tmp_path):
        for step in range(1, 5):
            if step == 4:
                content = {"model": network.state_dict(), "optimizer": optimizer.state_dict(), "step": 3}
                torch.save(content, tmp_path / "good.pt")
            optimizer.zero_grad()
            loss = network(torch.randn(8, 4)).square().mean()
            (loss * float("nan") if step == 4 else loss).backward()
            optimizer.step()
    shutil.rmtree(tmp_path / "run" / "saved")
    (bundle,) = (tmp_path / "run" / "incidents").iterdir()
    options = (("--run", str(tmp_path / "run")), ("--against", str(bundle)))
    for option in options:
        status, document = audited(tmp_path / "good.pt", capsys, *option)
        assert (status, differences(document)) == (0, []), document["differences"]
        assert [part["agree"] for part in document["parts"][:3]] == [4, 8, 4]
    content["optimizer"]["state"][0]["exp_avg"] = content["optimizer"]["state"][0]["exp_avg"] + 1e-6
    torch.save(content, tmp_path / "bad.pt")
    for option in options:
        _, document = audited(tmp_path / "bad.pt", capsys, *option)
        assert differences(document) == [("changed", "moments", "0.weight/exp_avg")]


def test_a_snapshot_and_the_tape_are_a_reference_for_the_place_in_the_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(24, 4))
    network = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    with steadytrain.watch(network, optimizer, runs_dir=tmp_path, name="run", keep_rewind=True):
        for (inputs,) in torch.utils.data.DataLoader(data, batch_size=4):
            optimizer.zero_grad()
            network(inputs).square().mean().backward()
            optimizer.step()
    first = next(shot for shot in find_snapshots(tmp_path / "run") if shot.step == 1)
    held = load_file(first.tensors)
    document = json.loads(first.document.read_text(encoding="utf-8"))
    weights = {name.removeprefix("model/"): held[name] for name in document["digests"] if name.startswith("model/")}
    content = {"model": weights, "step": 1, "dataloader": {"_num_yielded": 1, "total_batches": 1}}
    torch.save(content, tmp_path / "c.pt")
    shutil.rmtree(tmp_path / "run" / "saved", ignore_errors=True)
    _, document = audited(tmp_path / "c.pt", capsys, "--run", str(tmp_path / "run"))
    assert [one for one in differences(document) if one[1] in ("weights", "position")] == []
    assert any("had taken 1 batches" in note for note in document["notes"])
    assert document["parts"][0]["agree"] == 4
    content["dataloader"] = {"_num_yielded": 5, "total_batches": 2}
    content["model"] = {**weights, "0.bias": weights["0.bias"] + 1e-6}
    torch.save(content, tmp_path / "c.pt")
    _, document = audited(tmp_path / "c.pt", capsys, "--run", str(tmp_path / "run"))
    found = [one for one in differences(document) if one[1] in ("weights", "position")]
    assert found == [
        ("changed", "weights", "0.bias"),
        ("stale", "position", "dataloader._num_yielded"),
        ("stale", "position", "dataloader.total_batches"),
    ]


def test_of_several_optimizers_the_one_that_the_run_knows_is_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network, other = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1)), nn.Linear(2, 2)
    optimizer, another = (torch.optim.AdamW(one.parameters()) for one in (network, other))
    with steadytrain.watch(network, optimizer, runs_dir=tmp_path, name="run"):
        for _ in range(2):
            network(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
        content = {"state_dict": network.state_dict(), "a": another.state_dict(), "b": optimizer.state_dict()}
        torch.save(content, tmp_path / "c.pt")
    status, document = audited(tmp_path / "c.pt", capsys, "--run", str(tmp_path / "run"))
    assert (status, differences(document)) == (0, [])
    assert any("'a' is a further optimizer" in note for note in document["notes"])


RESUME = """
import sys, torch
from torch import nn
torch.manual_seed(0)
network = nn.Linear(4, 1)
optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
if "--resume" in sys.argv:
    content = torch.load("c.pt")
    network.load_state_dict(content["model"])
    optimizer.load_state_dict({**content["optimizer"], "state": {}})  # the fault
for _ in range(3):
    optimizer.zero_grad()
    network(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
torch.save({"model": network.state_dict(), "optimizer": optimizer.state_dict()}, "c.pt")
"""


def test_a_script_that_resumes_without_its_moments_is_told_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_script(tmp_path, RESUME, runs_dir=tmp_path / "first").status == 0
    status, document = audited(tmp_path / "c.pt", capsys, "--run", str(tmp_path / "first" / "run"))
    assert (status, differences(document)) == (0, [])
    resumed = run_script(tmp_path, RESUME, arguments=("--resume",), runs_dir=tmp_path / "second")
    assert resumed.status == 0
    assert "loading the state of AdamW lost something: no moments at all" in resumed.err
    status, document = audited(tmp_path / "c.pt", capsys, "--run", str(resumed.run_dir))
    assert [load["what"] for load in document["loads"]] == ["model", "optimizer"]
    assert (status, document["step"]) == (0, 3)
