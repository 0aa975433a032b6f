"""What is loaded against what was given, and cards of what is saved: told, cheap, and invisible."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import steadytrain
from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.snapshots import loaded_states
from steadytrain.capture.snapshots.state_fingerprints import CHUNK_BYTES, hold
from steadytrain.compare.checkpoint_contents import CheckpointContents
from steadytrain.storage.run_folder import open_run

STEPS = 3


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4, bias=False), nn.Linear(4, 1))


def train(network: nn.Module, optimizer: torch.optim.Optimizer, steps: int = STEPS) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        network(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()


def loaded(folder: Path, load: Callable[[nn.Module, torch.optim.Optimizer], Any]) -> tuple[list[Any], list[str]]:
    """The facts and notes of a run that trains, and then does ``load``."""
    network = model()
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    with steadytrain.watch(network, optimizer, runs_dir=folder, name="run"):
        train(network, optimizer)
        load(network, optimizer)
    run = open_run(folder / "run")
    return run.facts.get("loads", []), run.facts["notes"]


def without(state: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in state.items() if key != name}


def test_a_whole_load_loses_nothing(tmp_path: Path) -> None:
    def load(network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        network.load_state_dict(network.state_dict())
        optimizer.load_state_dict(optimizer.state_dict())

    facts, notes = loaded(tmp_path, load)
    assert [(fact["what"], fact["lost"]) for fact in facts] == [("model", []), ("optimizer", [])]
    assert (facts[0]["given"], facts[0]["restored"]) == (10, 10)
    assert notes == []


def test_a_cycle_of_momentum_goes_on_where_it_stood(tmp_path: Path) -> None:
    def load(network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=9)
        state = optimizer.state_dict()
        state["param_groups"][0]["betas"] = (0.87, *state["param_groups"][0]["betas"][1:])
        optimizer.load_state_dict(state)

    facts, notes = loaded(tmp_path, load)
    assert [name for _, name, *_ in facts[0]["settings"]] == ["betas"]
    assert (facts[0]["lost"], notes) == ([], [])


def test_a_weight_that_was_not_given(tmp_path: Path) -> None:
    def load(network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        network.load_state_dict({**without(network.state_dict(), "2.weight"), "x": torch.ones(1)}, strict=False)

    facts, notes = loaded(tmp_path, load)
    assert (facts[0]["missing"], facts[0]["unexpected"]) == (["2.weight"], ["x"])
    assert any("2.weight" in note for note in notes)


def test_an_adapter_alone_is_no_loss(tmp_path: Path) -> None:
    facts, notes = loaded(tmp_path, lambda network, _: network.load_state_dict({"3.bias": torch.ones(1)}, strict=False))
    assert len(facts[0]["missing"]) == 8  # a BatchNorm forgives that its counter is not there
    assert notes == []


def test_a_tied_weight_is_not_missing(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
            self.other.weight = self.one.weight

        def forward(self, x: Tensor) -> Tensor:
            output: Tensor = self.other(self.one(x))
            return output

    network = Tied()
    with steadytrain.watch(network, runs_dir=tmp_path, name="run"):
        train(network, torch.optim.SGD(network.parameters(), lr=0.01))
        network.load_state_dict(without(network.state_dict(), "other.weight"), strict=False)
    (fact,) = open_run(tmp_path / "run").facts["loads"]
    assert (fact["missing"], fact["lost"]) == ([], [])


def test_weights_that_are_rounded(tmp_path: Path) -> None:
    def load(network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        precise = network.state_dict()
        network.to(torch.bfloat16).load_state_dict(precise)

    facts, notes = loaded(tmp_path, load)
    assert len(facts[0]["cast"]) == 9  # not the counter of batches
    assert any("rounded from float32" in note for note in notes)


@pytest.mark.parametrize(
    ("spoil", "where", "told"),
    [
        (lambda state: state["state"].clear(), "missing", "no moments at all"),
        (lambda state: state["state"].pop(4), "missing", "no moments of 2.weight"),
        (lambda state: state["state"][4].pop("exp_avg_sq"), "missing", "2.weight/exp_avg_sq"),
        (lambda state: state["state"][0].update(exp_avg=torch.zeros(1, 4)), "reshaped", "0.weight/exp_avg"),
        (lambda state: state["param_groups"][0].update(betas=(0.9, 0.95)), "settings", "betas"),
    ],
)
def test_what_an_optimizer_loses(
    tmp_path: Path, spoil: Callable[[dict[str, Any]], object], where: str, told: str
) -> None:
    def load(network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        state = optimizer.state_dict()
        state["state"] = {key: dict(entries) for key, entries in state["state"].items()}
        spoil(state)
        optimizer.load_state_dict(state)

    facts, notes = loaded(tmp_path, load)
    assert facts[0][where]
    assert any(told in note for note in notes), notes


def test_moments_that_are_rounded_to_the_weights_dtype(tmp_path: Path) -> None:
    network = model()
    precise = torch.optim.AdamW(network.parameters())
    train(network, precise, 1)
    network.to(torch.bfloat16)
    with steadytrain.watch(network, runs_dir=tmp_path, name="run"):
        optimizer = torch.optim.AdamW(network.parameters())
        optimizer.load_state_dict(precise.state_dict())
        for _ in range(2):
            network(torch.randn(8, 4, dtype=torch.bfloat16)).square().mean().backward()
            optimizer.step()
    run = open_run(tmp_path / "run")
    assert "0.weight/exp_avg" in run.facts["loads"][0]["cast"]
    assert any("rounded" in note for note in run.facts["notes"])


def test_named_parameters_in_another_order(tmp_path: Path) -> None:
    network = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    named = list(network.named_parameters())
    other = torch.optim.AdamW(named[::-1])
    train(network, other, 1)
    with steadytrain.watch(network, runs_dir=tmp_path, name="run"):
        optimizer = torch.optim.AdamW(named)
        optimizer.load_state_dict(other.state_dict())
        train(network, optimizer)
    (fact,) = open_run(tmp_path / "run").facts["loads"]
    assert fact["swapped"] == ["1.weight into 0.weight", "0.weight into 1.weight"]


def trained(folder: Path | None) -> tuple[list[Tensor], Tensor]:
    """Weights and random state after a training that saves and loads in every step."""
    torch.manual_seed(3)
    network = model()
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)

    def go() -> None:
        for _ in range(4):
            train(network, optimizer, 1)
            network.load_state_dict(network.state_dict())
            optimizer.load_state_dict(optimizer.state_dict())

    if folder is None:
        go()
    else:
        with steadytrain.watch(network, optimizer, runs_dir=folder, name="run"):
            go()
    moments = [entry for state in optimizer.state.values() for entry in state.values()]
    return [*(parameter.detach() for parameter in network.parameters()), *moments], torch.get_rng_state()


def test_the_training_is_the_same_to_the_last_bit(tmp_path: Path) -> None:
    watched, bare = trained(tmp_path), trained(None)
    assert all(torch.equal(one, other) for one, other in zip(watched[0], bare[0], strict=True))
    assert torch.equal(watched[1], bare[1])


def test_the_patches_are_taken_out(tmp_path: Path) -> None:
    before = nn.Module.load_state_dict, torch.optim.Optimizer.load_state_dict, torch.optim.Optimizer.state_dict
    loaded(tmp_path, lambda network, optimizer: None)
    after = nn.Module.load_state_dict, torch.optim.Optimizer.load_state_dict, torch.optim.Optimizer.state_dict
    assert before == after


def test_an_error_of_ours_stops_no_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Guard, "reraise", False)
    monkeypatch.setattr(loaded_states, "_listed", lambda **names: 1 / 0)
    monkeypatch.setattr(loaded_states, "card", lambda **parts: 1 / 0)

    def load(network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        state = {name: torch.zeros_like(value) for name, value in network.state_dict().items()}
        network.load_state_dict(state)
        optimizer.load_state_dict(optimizer.state_dict())
        assert not any(parameter.any() for parameter in network.parameters())

    facts, _ = loaded(tmp_path, load)
    assert facts == []
    assert len(open_run(tmp_path / "run").facts["warnings"]) == 2


def test_a_load_that_fails_is_the_scripts_own_error(tmp_path: Path) -> None:
    def load(network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        with pytest.raises(RuntimeError, match="size mismatch"):
            network.load_state_dict({**network.state_dict(), "2.weight": torch.ones(2, 2)})
        with pytest.raises(ValueError, match="group"):
            optimizer.load_state_dict({"state": {}, "param_groups": []})

    facts, _ = loaded(tmp_path, load)
    assert facts == []


def test_facts_are_bounded(tmp_path: Path) -> None:
    def load(network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for _ in range(loaded_states.LOADS_MAX + 5):
            network.load_state_dict(network.state_dict())

    facts, _ = loaded(tmp_path, load)
    assert len(facts) == loaded_states.LOADS_MAX


def test_a_card_knows_what_the_run_had(tmp_path: Path) -> None:
    network = model()
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    with steadytrain.watch(network, optimizer, runs_dir=tmp_path, name="run"):
        train(network, optimizer, 2)
        schedule.step()
        optimizer.state_dict()
        expected = hold(dict(network.state_dict()))
    (file,) = (tmp_path / "run" / "saved").iterdir()
    card = CheckpointContents.from_json(json.loads(file.read_text()))
    assert (file.name, card.step, card.named) == ("step-00000002.json", 2, True)
    assert card.weights == expected
    assert card.counters == {name: 2.0 for name, _ in network.named_parameters()}
    assert card.scheduler is not None
    assert card.scheduler[0]["last_epoch"] == 1
    assert card.settings is not None
    assert card.settings[0]["betas"] == [0.9, 0.999]


def test_a_script_that_asks_for_the_state_in_every_step_pays_a_hundredth(tmp_path: Path) -> None:
    network = model()
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    with steadytrain.watch(network, optimizer, runs_dir=tmp_path, name="run"):
        for _ in range(20):
            train(network, optimizer, 1)
            optimizer.state_dict()
    assert len(list((tmp_path / "run" / "saved").iterdir())) < 5


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor(3),
        torch.zeros(0),
        torch.arange(7, dtype=torch.uint8),
        torch.randn(3, 5, dtype=torch.bfloat16)[:, 1:4],
        torch.tensor([True, False, True]),
        torch.randn(4, dtype=torch.complex64),
        torch.randn(CHUNK_BYTES // 4 + 3),
        torch.randn(5, 4).t(),
    ],
)
def test_a_digest_is_of_the_values_wherever_they_lie(tensor: Tensor) -> None:
    (held,) = hold({"x": tensor}).values()
    (copied,) = hold({"x": tensor.clone(memory_format=torch.contiguous_format)}).values()
    assert held == copied
    assert held.shape == tuple(tensor.shape)


def test_a_digest_sees_every_bit_and_every_swap() -> None:
    plain = torch.randn(CHUNK_BYTES // 4 + 10)
    digests = {hold({"x": plain})["x"].digest}
    for at in (0, 1, CHUNK_BYTES // 4 - 1, CHUNK_BYTES // 4, len(plain) - 1):
        changed = plain.clone()
        changed.view(torch.int32)[at] ^= 1
        digests.add(hold({"x": changed})["x"].digest)
    swapped = plain.clone()
    swapped[[2, 9]] = plain[[9, 2]]
    digests |= {hold({"x": swapped})["x"].digest, hold({"x": -plain})["x"].digest}
    assert len(digests) == 8


def test_values_that_went_through_a_shorter_format_are_seen() -> None:
    values = torch.randn(100)
    looked = hold(
        {"whole": values, "bf": values.bfloat16().float(), "half": values.half().float(), "ones": values * 0 + 1}
    )
    assert {name: held.rounded for name, held in looked.items()} == {
        "whole": None,
        "bf": "bfloat16",
        "half": "float16",
        "ones": None,
    }
    assert hold({"x": torch.tensor([1.0, float("nan"), float("inf")])})["x"].nonfinite == 2
