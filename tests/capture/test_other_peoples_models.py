"""Models and loops as others write them: the same to the last bit under watch, and a planted NaN is seen in time."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from other_peoples_loops import (  # noqa: E402
    Case,
    accumulated,
    averaged_copy,
    closure_of,
    evaluated,
    frozen_half,
    gan,
    own_training_step,
    parameters_join,
    plain,
    scaled,
    scheduled,
    sparse,
    subclassed,
    tensors_in_a_list,
    two_kinds_of_optimizer,
)
from other_peoples_modules import CalledTwice, Checkpointed, Complex, InPlace, Normed, Output, Wrapped  # noqa: E402
from torch import nn  # noqa: E402

import fingerprint  # noqa: E402
from fingerprint import STEPS, Training, seed  # noqa: E402
from parameters import telling  # noqa: E402
from scripts import Started, bare, watched, write  # noqa: E402
from steadytrain.capture.incident.environment import structure  # noqa: E402
from steadytrain.capture.step.run_stopped import RunStopped  # noqa: E402
from steadytrain.core.incident import Policy  # noqa: E402
from steadytrain.storage.bundle import open_bundle  # noqa: E402
from steadytrain.storage.run_folder import open_run  # noqa: E402
from watching import watching  # noqa: E402

NAN_AT = 4


COMPILED = """
import sys, torch
class Root(torch.nn.Module):
    def forward(self, x):
        return torch.log(x)
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.root, self.last = torch.nn.Linear(4, 8), Root(), torch.nn.Linear(8, 1)
    def forward(self, x):
        return self.last(self.root(self.first(x).exp() * x[:, :1].abs()))
torch.set_num_threads(1)
torch.manual_seed(0)
model = Model()
call = model
if sys.argv[1] == "function":
    call = torch.compile(model, fullgraph=True, backend="aot_eager")
if sys.argv[1] == "method":
    model.compile(fullgraph=True, backend="aot_eager")
if sys.argv[1] == "part":
    model.root.compile(fullgraph=True, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
try:
    for step in range(1, 7):
        x = torch.randn(8, 4)
        x[0, 0] = 0.0 if step == 4 else 1.0
        optimizer.zero_grad()
        call(x).pow(2).mean().backward()
        optimizer.step()
finally:
    print("all finite" if all(parameter.isfinite().all() for parameter in model.parameters()) else "spoiled")
"""

SPARSE = "the gradient of words.weight is sparse: it has no element-wise measurements"
SECOND_MODEL = "outputs of modules are measured only for the models that the Adam of InPlace updates"
NO_MODULE = "no torch.nn.Module holds the parameters: they are named by their position in the optimizer"
CASES = [
    Case("in-place", plain(InPlace())),
    Case("shared-module", plain(CalledTwice())),
    Case("dataclass", plain(Wrapped(lambda y, h: Output(y, (h,))), loss=lambda out: out.prediction.pow(2).mean())),
    Case("tuple", plain(Wrapped(lambda y, h: (y, [h, None])), loss=lambda out: out[0].pow(2).mean())),
    Case("dict", plain(Wrapped(lambda y, h: {"y": y, "h": h, "n": 3}), loss=lambda out: out["y"].pow(2).mean())),
    Case("loss-in-model", plain(Wrapped(lambda y, h: {"loss": y.pow(2).mean()}), loss=lambda out: out["loss"])),
    Case("batch-norm-dropout", plain(Normed())),
    Case("checkpoint", plain(Checkpointed(reentrant=False))),
    Case("checkpoint-reentrant", plain(Checkpointed(reentrant=True))),
    Case("complex", plain(Complex())),
    Case("parameters-join", parameters_join),
    Case("frozen-half", frozen_half),
    Case("scheduler", scheduled),
    Case("evaluation", evaluated),
    Case("accumulation", accumulated),
    Case("gan", gan, note=SECOND_MODEL),
    Case("two-kinds-of-optimizer", two_kinds_of_optimizer),
    Case("closure-adam", closure_of(lambda parameters: torch.optim.Adam(parameters, lr=0.01))),
    Case("closure-lbfgs", closure_of(lambda parameters: torch.optim.LBFGS(parameters, lr=0.1, max_iter=3))),
    Case("tensors-in-a-list", tensors_in_a_list, note=NO_MODULE),
    Case("averaged-copy", averaged_copy),
    Case("sparse", sparse, note=SPARSE),
    Case("own-training-step", own_training_step),
    Case("tensor-subclass", subclassed),
]
OBSERVED = (
    "accumulation",
    "gan",
    "two-kinds-of-optimizer",
    "closure-lbfgs",
    "sparse",
    "scheduler",
    "own-training-step",
)
"""Observed in every test run; the others are stopped there, and observed in the long one."""

STOPPED = (
    *("in-place", "dataclass", "batch-norm-dropout", "checkpoint-reentrant", "parameters-join", "accumulation", "gan"),
    *("two-kinds-of-optimizer", "closure-lbfgs", "tensors-in-a-list", "sparse", "own-training-step", "tensor-subclass"),
)
"""Stopped in every test run; what is left out differs from these in what a healthy run compares."""
HEALTHY = [
    *(case.name for case in CASES if case.name not in ("tuple", "loss-in-model", "checkpoint", "closure-adam")),
    "scaler-fused",
]

SCALED = [
    Case("scaler", scaled(lambda parameters: torch.optim.AdamW(parameters, lr=0.01))),
    Case("scaler-fused", scaled(lambda parameters: torch.optim.AdamW(parameters, lr=0.01, fused=True))),
]


@pytest.mark.parametrize("policy", telling(["observe", "stop"], ["stop"]))
@pytest.mark.parametrize("case", telling([*CASES, *SCALED], HEALTHY, lambda case: case.name))
def test_a_healthy_loop_is_the_same_under_watch(case: Case, policy: Policy, tmp_path: Path) -> None:
    bare = train(case)
    with watching(tmp_path / "run", policy) as watcher:
        watched = train(case)
    assert watched.lines == bare.lines
    assert watcher.incidents == []
    run = open_run(tmp_path / "run")
    window = run.window()
    assert window.steps.tolist() == list(range(1, STEPS + 1))
    assert window.signals["loss"].tolist() == pytest.approx(bare.losses, rel=1e-6)
    assert run.facts["notes"] == ([] if case.note is None else [case.note])


@pytest.mark.parametrize("case", telling(CASES, OBSERVED, lambda case: case.name))
def test_a_planted_nan_is_recorded_and_the_loop_left_alone(case: Case, tmp_path: Path) -> None:
    bare = train(case, nan_at=NAN_AT)
    with watching(tmp_path / "run", "observe") as watcher:
        watched = train(case, nan_at=NAN_AT)
    assert watched.lines == bare.lines
    assert watcher.incidents
    assert open_bundle(watcher.incidents[0]).incident.step == NAN_AT
    assert open_run(tmp_path / "run").window().steps.tolist() == list(range(1, STEPS + 1))


@pytest.mark.parametrize("case", telling(CASES, STOPPED, lambda case: case.name))
def test_a_planted_nan_never_reaches_the_weights(case: Case, tmp_path: Path) -> None:
    bare = train(case, steps=NAN_AT - 1)
    watched = Training(nan_at=NAN_AT)
    with watching(tmp_path / "run", "stop") as watcher, pytest.raises(RunStopped):
        seeded(case, watched)
    assert [open_bundle(path).incident.step for path in watcher.incidents] == [NAN_AT]
    assert watched.state() == bare.state()


@pytest.mark.parametrize("policy", ["observe", "stop"])
@pytest.mark.parametrize("case", SCALED, ids=lambda case: case.name)
def test_a_step_that_the_scaler_skips_itself_is_no_incident(case: Case, policy: Policy, tmp_path: Path) -> None:
    bare = train(case, nan_at=NAN_AT)
    with watching(tmp_path / "run", policy) as watcher:
        watched = train(case, nan_at=NAN_AT)
    assert watched.lines == bare.lines
    assert watcher.incidents == []
    window = open_run(tmp_path / "run").window()
    assert window.steps[window.skipped].tolist() == [NAN_AT]
    assert window.steps.tolist() == list(range(1, STEPS + 1))


def test_a_module_saved_as_a_whole_loads_where_nobody_knows_us(tmp_path: Path) -> None:
    model = Normed().double()
    model.__class__ = nn.Sequential  # a class that the other process has
    plain = copy.deepcopy(model.state_dict())
    with watching(tmp_path / "run", "stop"):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        assert list(model.state_dict()) == list(plain)
        torch.save(model, tmp_path / "before.pt")
        for _ in range(3):
            model.eval()(torch.ones(4, 8).double()).mean().backward()
            optimizer.step()
        torch.save([model, copy.deepcopy(model)], tmp_path / "after.pt")
        assert fingerprint.digest(model.state_dict()) == fingerprint.digest(plain)
    script = """
        import sys
        sys.modules["steadytrain"] = None
        import torch
        models = [torch.load("before.pt", weights_only=False), *torch.load("after.pt", weights_only=False)]
        print([model.eval()(torch.ones(1, 8).double()).item() for model in models])
    """
    ended = Started(bare(write(tmp_path, script)), tmp_path).end()
    expected = model.eval()(torch.ones(1, 8).double()).item()
    assert (ended.own, ended.out) == ("", f"{[expected] * 3}\n")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_copy_of_a_watched_model_is_a_model_of_its_own(tmp_path: Path) -> None:
    with watching(tmp_path / "run", "stop") as watcher:
        model = Normed()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        twin = copy.deepcopy(model)
        for _ in range(3):
            twin(torch.full((4, 8), float("nan"))).mean()  # nobody trains on this
            optimizer.zero_grad()
            model(torch.randn(4, 8)).mean().backward()
            optimizer.step()
    assert watcher.incidents == []
    assert open_run(tmp_path / "run").window().signals["samples"].tolist() == [4.0, 4.0, 4.0]


@pytest.mark.parametrize("policy", ["observe", "stop"])
def test_a_cycle_of_modules_is_watched(policy: Policy, tmp_path: Path) -> None:
    with watching(tmp_path / "run", policy):
        first, second = nn.Linear(4, 4), nn.Linear(4, 1)
        first.partner, second.partner = second, first
        optimizer = torch.optim.SGD([first.weight, second.weight], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            second(first(torch.randn(3, 4))).pow(2).mean().backward()
            optimizer.step()
    window = open_run(tmp_path / "run").window()
    assert window.steps.tolist() == [1, 2, 3]
    assert not [name for name in window.tensor_names if name.startswith("parameter.")]
    assert structure([first]) == "(): Linear\n(partner): Linear"
    del first.partner
    assert structure([second]) == str(second)


def test_a_module_that_cannot_be_printed_is_listed() -> None:
    class Mute(nn.Linear):
        def extra_repr(self) -> str:
            raise RuntimeError("of the script")

    shared = nn.ReLU()
    assert structure([nn.Sequential(Mute(2, 2))]) == "(): Sequential\n(0): Mute"
    twice = nn.Sequential(nn.Sequential(shared), shared)
    assert structure([twice]) == str(twice), "shared is no cycle"


def test_a_secret_as_the_name_of_a_class_is_not_printed() -> None:
    secret = "".join(("YWMrz5n", "ZORf2"))
    named = type(f"credential: {secret}", (nn.Identity,), {})
    assert structure([nn.Sequential(named())]) == (
        "Sequential(\n  (0): credential: [redacted: credential, 12 characters]()\n)"
    )


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("how", telling(["function", "method", "part"], ["method"]))
def test_compiled_code_is_looked_into_once_an_update_is_refused(how: str, tmp_path: Path) -> None:
    write(tmp_path, COMPILED)
    ended = Started(watched("script.py", how), tmp_path, environment={"PYTHONWARNINGS": "ignore"}).end()
    assert (ended.status, ended.own) == (70, "")
    assert "warning:" not in ended.told
    assert "STOPPED before the update of step 4" in ended.told
    assert "aten.log.default made" in ended.told
    assert "return torch.log(x)" in ended.told
    assert ended.out == "all finite\n"


def train(case: Case, **options: Any) -> Training:
    training = Training(**options)
    seeded(case, training)
    return training


def seeded(case: Case, training: Training) -> None:
    seed(0)
    case.loop(training)
