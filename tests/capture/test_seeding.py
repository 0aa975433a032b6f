"""``run --seed --deterministic``: every seed before the script, its own seeds still hold, and what was not seeded."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from scripts import run_script, write_script  # noqa: E402
from steadytrain.capture.hooks import seeding  # noqa: E402
from steadytrain.capture.hooks.seeding import AS_IT_IS, Randomness, begin_process, begin_torch  # noqa: E402

DRAWS = """
    import os, random, sys
    import numpy, torch

    print(random.random(), numpy.random.rand(), torch.rand(1).item(), os.environ.get("PYTHONHASHSEED"))
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(4):
        torch.zeros(4).put_(torch.tensor([0]), torch.ones(1))
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    print([parameter.tolist() for parameter in model.parameters()])
"""


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """These functions change their process, which in a test is everybody's."""
    monkeypatch.setattr(seeding, "_process", seeding._Process(AS_IT_IS, None, False, {}))
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    settings = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    cudnn = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    shown, variables = warnings.showwarning, dict(os.environ)
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])
    torch.use_deterministic_algorithms(settings[0], warn_only=settings[1])
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = cudnn
    warnings.showwarning = shown
    os.environ.clear()
    os.environ.update(variables)


def drawn() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(1))


def begin(asked: Randomness) -> None:
    begin_process(asked)
    begin_torch()


def test_one_seed_sets_all_and_a_second_import_of_torch_none() -> None:
    begin(Randomness(7))
    first = drawn()
    begin_torch()
    assert float(torch.rand(1)) != first[2]
    seeding._process.begun = False
    begin(Randomness(7))
    assert drawn() == first


def test_without_a_seed_no_generator_is_touched() -> None:
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    begin(AS_IT_IS)
    assert random.getstate() == states[0]
    assert np.random.get_state()[1].tolist() == states[1]
    assert torch.equal(torch.get_rng_state(), states[2])
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_seed_of_the_script_holds_afterwards() -> None:
    begin(Randomness(7))
    torch.manual_seed(3)
    assert seeding.facts() == {"seeded": True, "torch_seed": "3", "seed": 7, "deterministic": False}


def test_a_script_that_never_seeds_is_named_with_what_torch_drew() -> None:
    own = torch.seed()
    begin(AS_IT_IS)
    torch.rand(3)
    assert seeding.facts() == {"seeded": False, "torch_drew": str(own)}
    (line,) = seeding.end_lines()
    assert "no seed was set" in line
    assert f"--seed {own}" in line
    torch.manual_seed(0)
    assert seeding.end_lines() == []
    assert seeding.facts() == {"seeded": True, "torch_seed": "0"}


def test_the_seed_that_torch_drew_draws_the_same_again() -> None:
    own = torch.seed()
    begin(AS_IT_IS)
    first = torch.rand(5)
    seeding._process.begun = False
    begin(Randomness(own))
    assert torch.equal(torch.rand(5), first)


def test_a_seed_set_before_the_watch_counts() -> None:
    torch.manual_seed(11)
    begin(AS_IT_IS)
    assert seeding.facts() == {"seeded": True, "torch_seed": "11"}
    assert seeding.end_lines() == []


def test_deterministic_names_the_operations_that_warned_and_passes_warnings_on() -> None:
    heard: list[str] = []
    warnings.showwarning = lambda message, *_, **__: heard.append(str(message))
    begin(Randomness(deterministic=True))
    assert torch.is_deterministic_algorithms_warn_only_enabled()
    assert torch.backends.cudnn.deterministic
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    torch.manual_seed(0)
    assert "no operation has warned" in seeding.end_lines()[-1]
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        torch.zeros(4).put_(torch.tensor([0]), torch.ones(1))
        warnings.warn("something else", UserWarning, stacklevel=1)
    assert seeding.operations_that_warned() == ["put_"]
    assert "put_ (no deterministic version)" in seeding.end_lines()[-1]
    assert heard[-1] == "something else"
    assert "put_" in heard[0]


def test_what_a_run_was_started_with_is_read_back_and_a_damaged_entry_is_none() -> None:
    asked = Randomness(2**63 + 1, True)
    assert Randomness.recorded({"randomness": asked.to_json()}) == asked
    assert seeding.hash_variables({"randomness": asked.to_json()}) == {"PYTHONHASHSEED": "1"}
    for damaged in ({}, {"randomness": 3}, {"randomness": {"seed": "x", "deterministic": 1}}):
        assert Randomness.recorded(damaged) == AS_IT_IS
        assert seeding.hash_variables(damaged) == {}


@pytest.mark.long
@pytest.mark.slow
def test_two_seeded_runs_are_equal_and_the_end_says_what_remains(tmp_path: Path) -> None:
    ends = [
        run_script(tmp_path, DRAWS, "--seed", "7", "--deterministic", runs_dir=tmp_path / name)
        for name in ("first", "second")
    ]
    assert ends[0].out == ends[1].out
    assert "put_ (no deterministic version)" in ends[0].err
    assert "no seed was set" not in ends[0].err
    assert ends[0].run.description["randomness"] == {"seed": 7, "deterministic": True}
    assert ends[0].run.facts["nondeterministic_operations"] == ["put_"]
    assert ends[0].run.facts["randomness"]["torch_seed"] == "7"


@pytest.mark.slow
@pytest.mark.long
def test_a_replay_draws_and_hashes_as_the_seeded_run_did(tmp_path: Path) -> None:
    order = "    scale = float([len(word) for word in {'a', 'bb', 'ccc', 'dddd', 'eeeee'}][0])\n"
    hashing = DRAWS.replace("    for step", f"{order}    for step").replace(".mean()", ".mean().mul(scale)")
    script = write_script(tmp_path, hashing)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
    begun = [sys.executable, "-m", "steadytrain"]
    options = ["--runs-dir", "runs", "--name", "run", "--seed", "7", "--keep-rewind"]
    for arguments in (["run", *options, script.name], ["replay", "runs/run"]):
        ended = subprocess.run(
            [*begun, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
    assert "to the last bit" in ended.stdout, ended.stdout + ended.stderr
    assert "PYTHONHASHSEED" not in ended.stdout
