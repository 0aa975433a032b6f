"""The bundle of a real incident: all that is needed to look into it elsewhere, nothing secret, nothing that runs."""

from __future__ import annotations

import io
import json
import os
import pickletools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from scripts import call, run_script
from steadytrain.capture.incident.freeze import random_state
from steadytrain.capture.step.input_recorder import RING_STEPS, RandomState
from steadytrain.storage.bundle import open_bundle
from steadytrain.storage.run_folder import open_run
from steadytrain.storage.tree import decode
from watching import stopping

BAD_STEP = 7


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.embed.weight  # tied

    def forward(self, ids: Tensor, *, options: dict[str, Any]) -> Tensor:
        return self.head(self.norm(self.embed(ids).mean(1))) * options["scale"]


class Incident:
    """A run that was stopped, what the script saw of it, and the bundle."""

    def __init__(self, runs_dir: Path, **how: Any) -> None:
        torch.manual_seed(0)
        self.model = Net()
        self.optimizer = torch.optim.Adam(
            [{"params": [self.model.embed.weight]}, {"params": self.model.norm.parameters(), "weight_decay": 0.1}],
            lr=1e-2,
        )
        self.given: dict[int, list[tuple[Tensor, float]]] = {}
        self.random_states: dict[int, list[RandomState]] = {}
        with stopping(self.model, self.optimizer, runs_dir, **how):
            for step in range(1, 20):
                self.optimizer.zero_grad()
                for micro in range(2):
                    ids, scale = torch.randint(0, 10, (3, 5)), random.random() + np.random.rand()
                    if (step, micro) == (BAD_STEP, 1):
                        scale = float("nan")
                    self.given.setdefault(step, []).append((ids.clone(), scale))
                    self.random_states.setdefault(step, []).append(RandomState.take())
                    loss = self.model(ids, options={"scale": scale, "name": "x", "callback": print}).pow(2).mean() / 2
                    loss.backward()
                    ids.zero_()  # a script may reuse its tensors
                self.optimizer.step()
        (self.path,) = open_run(runs_dir / "run").incidents

    def json(self, name: str) -> Any:
        return json.loads((self.path / name).read_text())


@pytest.fixture(scope="module")
def incident(tmp_path_factory: pytest.TempPathFactory) -> Incident:
    return Incident(tmp_path_factory.mktemp("runs"))


def same_values(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)


def test_the_batches_are_what_the_model_got(incident: Incident) -> None:
    calls = incident.json("batches.json")["calls"]
    tensors = load_file(incident.path / "batches.safetensors")
    expected = [(step, micro) for step in range(BAD_STEP - RING_STEPS, BAD_STEP + 1) for micro in (0, 1)]
    assert [(one["step"], one["micro_batch"]) for one in calls] == expected
    for one in calls:
        ids, scale = incident.given[one["step"]][one["micro_batch"]]
        value = decode(one["call"], tensors)
        assert same_values(value["args"][0], ids)
        assert value["kwargs"]["options"]["scale"] == scale or scale != scale
        assert one["not_kept"] == ["builtins.builtin_function_or_method"]
        assert not one["changed_after_use"]


def test_the_random_states_give_the_same_draws(incident: Incident) -> None:
    tensors = load_file(incident.path / "batches.safetensors")

    def draws() -> list[Any]:
        return [random.random(), random.gauss(0, 1), np.random.randn(2).tolist(), torch.randn(3).tolist()]

    for one in incident.json("batches.json")["calls"]:
        random_state(decode(one["call"], tensors)["random"]).restore()
        replayed = draws()
        incident.random_states[one["step"]][one["micro_batch"]].restore()
        assert replayed == draws()


def test_the_state_before_the_step_draws_the_batch_again(incident: Incident) -> None:
    tree = decode(incident.json("rng.json"), load_file(incident.path / "rng.safetensors"))
    random_state(tree["before_step"]).restore()
    ids, scale = incident.given[BAD_STEP][0]
    assert torch.equal(torch.randint(0, 10, (3, 5)), ids)
    assert random.random() + np.random.rand() == scale


def test_the_weights_are_those_before_the_step(incident: Incident) -> None:
    saved = load_file(incident.path / "model.safetensors")
    state = incident.model.state_dict()
    assert set(saved) == set(state)
    assert all(same_values(saved[name], state[name]) for name in state)
    fresh = Net()
    fresh.load_state_dict(saved)


def test_the_optimizer_is_kept_by_the_names_of_parameters(incident: Incident) -> None:
    tensors = load_file(incident.path / "optimizer.safetensors")
    (tree,) = incident.json("optimizer.json")["optimizers"]
    value = decode(tree, tensors)
    assert value["class"] == "Adam"
    assert [group["parameters"] for group in value["groups"]] == [["embed.weight"], ["norm.weight", "norm.bias"]]
    assert [group["settings"]["weight_decay"] for group in value["groups"]] == [0, 0.1]
    named = dict(incident.model.named_parameters())
    assert set(value["state"]) == set(named)
    for name, state in value["state"].items():
        real = incident.optimizer.state[named[name]]
        assert set(state) == set(real)
        assert all(same_values(state[key], real[key]) for key in real)


def test_the_window_is_the_steps_up_to_the_bad_one(incident: Incident) -> None:
    window = open_bundle(incident.path).window
    assert window.steps.tolist() == list(range(1, BAD_STEP + 1))
    assert window.refused.tolist() == [False] * (BAD_STEP - 1) + [True]
    assert window.tensor_names == ("embed.weight", "norm.weight", "norm.bias")


def test_nothing_in_it_is_pickle(incident: Incident) -> None:
    for path in filter(Path.is_file, incident.path.rglob("*")):
        assert path.suffix in (".json", ".safetensors", ".steps", ".diff"), path
        data = path.read_bytes()
        assert not data.startswith(b"PK"), "a zip, as torch.save writes it"
        if path.suffix == ".safetensors":  # its first byte is that of a length, and may be any opcode
            assert json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
            continue
        with pytest.raises(Exception):  # noqa: B017, PT011 (whatever pickletools says of it)
            # With its stack: the first bytes of a segment are a checksum, which may spell two opcodes, such as "1.".
            pickletools.dis(data, out=io.StringIO())


@pytest.mark.parametrize("state_mb", [0, 4096])
def test_the_state_is_kept_within_its_bound(state_mb: int, tmp_path: Path) -> None:
    incident = Incident(tmp_path, state_mb=state_mb)
    note = open_bundle(incident.path).incident.state_note
    kept = (incident.path / "model.safetensors").exists()
    assert kept == bool(state_mb)
    if kept:
        assert note.startswith(f"kept as it was before step {BAD_STEP}: ")
    else:
        assert note == "not kept: --state-mb 0 keeps none"
        assert not (incident.path / "optimizer.safetensors").exists()


# -- damage ------------------------------------------------------------------------------------------------------------


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def outside(path: Path) -> None:
    manifest = json.loads(path.read_text())
    manifest["files"]["../../../etc/passwd"] = {"bytes": 1, "sha256": "0"}
    path.write_text(json.dumps(manifest))


DAMAGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "cut off": ("incident.json", cut),
    "one bit": ("incident.json", flip),
    "weights, one bit": ("model.safetensors", flip),
    "batches cut": ("batches.safetensors", cut),
    "window, one bit": ("window.steps", flip),
    "a file gone": ("environment.json", Path.unlink),
    "no manifest": ("manifest.json", Path.unlink),
    "manifest cut": ("manifest.json", lambda path: path.write_bytes(path.read_bytes()[:40])),
    "a path outside": ("manifest.json", outside),
}


@pytest.mark.slow
def test_a_damaged_bundle_is_refused_in_one_line(tmp_path: Path) -> None:
    incident = Incident(tmp_path)
    for name, (file, damage) in DAMAGES.items():
        path = incident.path / file
        whole = path.read_bytes()
        damage(path)
        shown = call("show", str(incident.path))
        path.write_bytes(whole)
        assert shown.returncode == 2, (name, shown)
        assert shown.stdout == ""
        (line,) = shown.stderr.splitlines()
        assert str(incident.path) in line, name
    open_bundle(incident.path)


# -- secrets -----------------------------------------------------------------------------------------------------------

WITH_SECRETS = """
import argparse
import os
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--api-key")
parser.add_argument("--lr", type=float)
args = parser.parse_args()
wandb_api_key = args.api_key
assert args.api_key == os.environ["HF_TOKEN"] == os.environ["TORCH_AUTH_TOKEN"]
model = nn.Linear(2, 1)
model.config = argparse.Namespace(hidden=2, auth_token=args.api_key)
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
for step in range(3):
    loss = model(torch.randn(3, 2)).mean() / (step != 1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
SECRET = "correct-horse-battery-staple"


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [("--api-key", SECRET), pytest.param((f"--api-key={SECRET}",), marks=pytest.mark.long)]
)
def test_secrets_are_nowhere_in_the_run_folder(arguments: tuple[str, ...], tmp_path: Path) -> None:
    outcome = run_script(
        tmp_path,
        WITH_SECRETS,
        arguments=("--lr", "0.1", *arguments),
        environment={"HF_TOKEN": SECRET, "TORCH_AUTH_TOKEN": SECRET},
    )
    assert outcome.status == 70, outcome.err
    assert SECRET not in outcome.err
    files = [path for path in outcome.run_dir.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
    environment = json.loads((outcome.run.incidents[0] / "environment.json").read_text())
    assert "--lr" in environment["argv"]
    assert environment["configuration"]["args"]["lr"] == 0.1
    assert os.environ.get("TORCH_AUTH_TOKEN") is None
