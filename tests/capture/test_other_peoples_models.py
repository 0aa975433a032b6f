"""Models and loops as others write them: the same to the last bit under watch, and a planted NaN is seen in time."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import fingerprint  # noqa: E402 (torch is optional for an install of steadytrain)
from fingerprint import STEPS, Training, seed  # noqa: E402 (torch is optional for an install of steadytrain)
from parameters import telling  # noqa: E402
from scripts import Started, bare, watched, write  # noqa: E402
from steadytrain.capture.incident.environment import structure  # noqa: E402
from steadytrain.capture.step.run_stopped import RunStopped  # noqa: E402
from steadytrain.core.incident import Policy  # noqa: E402
from steadytrain.storage.bundle import open_bundle  # noqa: E402
from steadytrain.storage.run_folder import open_run  # noqa: E402
from watching import watching  # noqa: E402

NAN_AT = 4


# -- models ------------------------------------------------------------------------------------------------------------


class InPlace(nn.Module):
    """In-place code everywhere: ReLU, addition, and a buffer that counts."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 1)
        self.relu = nn.ReLU(inplace=True)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        h = self.relu(self.first(x))
        y = self.first(h)
        y += h
        return self.second(y.mul_(0.5))


class CalledTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block, self.head = nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(torch.tanh(self.block(x))))


@dataclass
class Output:
    prediction: Tensor
    hidden: tuple[Tensor, ...]


class Wrapped(nn.Module):
    """Gives what ``wrap`` makes of its prediction and its hidden state."""

    def __init__(self, wrap: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.first, self.second, self.wrap = nn.Linear(8, 8), nn.Linear(8, 1), wrap

    def forward(self, x: Tensor) -> Any:
        hidden = self.first(x).relu()
        return self.wrap(self.second(hidden), hidden)


class Normed(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1))


class Checkpointed(nn.Module):
    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2), nn.GELU()) for _ in range(3))
        self.head = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = x.requires_grad_()
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return self.head(x)


class OwnSteps(nn.Module):
    """Never called itself: the loop calls ``training_step``, which calls the parts."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = nn.Linear(8, 8), nn.Linear(8, 1)

    def training_step(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(x).relu()).pow(2).mean()


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 4, dtype=torch.complex64))
        self.head = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head((x.to(torch.complex64) @ self.weight).abs())


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(50, 8, sparse=True), nn.Linear(8, 1)

    def forward(self, ids: Tensor, weights: Tensor) -> Tensor:
        return self.head((self.words(ids) * weights[..., None]).sum(1))


class Marked(Tensor):
    """A tensor subclass that a script brings along: parameters and inputs of this kind."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_function__(function, types, args, kwargs or {})


# -- loops -------------------------------------------------------------------------------------------------------------


def plain(model: nn.Module, *, loss: Callable[[Any], Tensor] = lambda y: y.pow(2).mean()) -> Callable[[Training], None]:
    """The usual loop with AdamW and gradient clipping."""

    def loop(training: Training) -> None:
        trained = copy.deepcopy(model)
        optimizer = torch.optim.AdamW(trained.parameters(), lr=0.01)
        training.owns(trained, optimizer)
        for step in training.steps():
            optimizer.zero_grad()
            value = loss(trained(training.batch(step, 6, 8)))
            value.backward()
            nn.utils.clip_grad_norm_(trained.parameters(), 1.0)
            training.went_back(step, value)
            optimizer.step()
            training.updated(step)

    return loop


def parameters_join(training: Training) -> None:
    """A layer is made and given to the optimizer in the middle of the run."""
    layers = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    head = nn.Linear(8, 1)
    optimizer = torch.optim.AdamW([*layers.parameters(), *head.parameters()], lr=0.01)
    training.owns(layers, head, optimizer)
    for step in training.steps():
        if step == 3:
            layers.append(nn.Linear(8, 8))
            optimizer.add_param_group({"params": layers[-1].parameters(), "lr": 0.1})
        optimizer.zero_grad()
        loss = head(layers(training.batch(step, 6, 8))).pow(2).mean()
        loss.backward()
        training.went_back(step, loss)
        optimizer.step()
        training.updated(step)


def frozen_half(training: Training) -> None:
    model = Normed()
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    training.owns(model, optimizer)
    for step in training.steps():
        optimizer.zero_grad()
        loss = model(training.batch(step, 6, 8)).pow(2).mean()
        loss.backward()
        training.went_back(step, loss)
        optimizer.step()
        training.updated(step)


def scheduled(training: Training) -> None:
    model = Normed()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=STEPS + 2)
    training.owns(model, optimizer, scheduler)
    for step in training.steps():
        optimizer.zero_grad()
        loss = model(training.batch(step, 6, 8)).pow(2).mean()
        loss.backward()
        training.went_back(step, loss)
        optimizer.step()
        training.updated(step)
        scheduler.step()


def evaluated(training: Training) -> None:
    """An evaluation with another random draw stands between the steps."""
    model = Normed()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    training.owns(model, optimizer)
    for step in training.steps():
        optimizer.zero_grad()
        loss = model(training.batch(step, 6, 8)).pow(2).mean()
        loss.backward()
        training.went_back(step, loss)
        optimizer.step()
        training.updated(step)
        if step % 2 == 0:
            model.eval()
            with torch.no_grad():
                model(torch.randn(6, 8))
            model.train()


def accumulated(training: Training) -> None:
    model = Normed()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    training.owns(model, optimizer)
    for step in training.steps():
        optimizer.zero_grad()
        losses = []
        for micro_step in range(3):
            loss = model(training.batch(step if micro_step == 1 else 0, 6, 8)).pow(2).mean()
            (loss / 3).backward()
            losses.append(loss.detach())
        training.went_back(step, torch.stack(losses).mean())
        optimizer.step()
        training.updated(step)


def gan(training: Training) -> None:
    """Two optimizers take turns, two backward passes a round."""
    generator, critic = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8)), InPlace()
    forger = torch.optim.Adam(generator.parameters(), lr=0.01)
    judge = torch.optim.Adam(critic.parameters(), lr=0.01)
    training.owns(generator, critic, forger, judge)
    for step in training.steps():
        real, noise = training.batch(step, 6, 8), torch.randn(6, 4)
        judge.zero_grad()
        loss = functional.softplus(-critic(real)).mean() + functional.softplus(critic(generator(noise).detach())).mean()
        loss.backward()
        training.went_back(step, loss)
        judge.step()
        training.updated(step)
        forger.zero_grad()
        loss = functional.softplus(-critic(generator(noise))).mean()
        loss.backward()
        forger.step()
        training.updated(step)


def two_kinds_of_optimizer(training: Training) -> None:
    """Matrices go to one optimizer and the rest to another; both step after the same backward."""
    model = Normed()
    matrices = [parameter for parameter in model.parameters() if parameter.dim() == 2]
    others = [parameter for parameter in model.parameters() if parameter.dim() != 2]
    optimizers = [torch.optim.SGD(matrices, lr=0.01, momentum=0.9), torch.optim.AdamW(others, lr=0.01)]
    training.owns(model, *optimizers)
    for step in training.steps():
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = model(training.batch(step, 6, 8)).pow(2).mean()
        loss.backward()
        training.went_back(step, loss)
        for optimizer in optimizers:
            optimizer.step()
        training.updated(step)


def closure_of(make: Callable[[Any], torch.optim.Optimizer]) -> Callable[[Training], None]:
    def loop(training: Training) -> None:
        model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
        optimizer = make(model.parameters())
        training.owns(model, optimizer)
        for step in training.steps():
            batch, losses = training.batch(step, 6, 8), []

            def closure(batch: Tensor = batch, losses: list[Tensor] = losses) -> Tensor:
                optimizer.zero_grad()
                loss = (model(batch) - 1).pow(2).mean()
                loss.backward()
                losses.append(loss)
                return loss

            optimizer.step(closure)
            training.went_back(step, losses[-1])
            training.updated(step)

    return loop


def scaled(make: Callable[[Any], torch.optim.Optimizer]) -> Callable[[Training], None]:
    def loop(training: Training) -> None:
        model = Normed()
        optimizer = make(model.parameters())
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        training.owns(model, optimizer, scaler)
        for step in training.steps():
            optimizer.zero_grad()
            loss = model(training.batch(step, 6, 8)).pow(2).mean()
            scaler.scale(loss).backward()
            training.went_back(step, loss)
            scaler.step(optimizer)
            scaler.update()
            training.updated(step)

    return loop


def tensors_in_a_list(training: Training) -> None:
    """No torch.nn.Module anywhere."""
    weights = [torch.randn(8, 8, requires_grad=True), torch.randn(8, 1, requires_grad=True)]
    optimizer = torch.optim.SGD(weights, lr=0.01)
    training.owns(weights, optimizer)
    for step in training.steps():
        optimizer.zero_grad()
        loss = ((training.batch(step, 6, 8) @ weights[0]).relu() @ weights[1]).pow(2).mean()
        loss.backward()
        training.went_back(step, loss)
        optimizer.step()
        training.updated(step)


def averaged_copy(training: Training) -> None:
    """The model is copied in the middle of the run, and the copy follows by moving average."""
    model, average = Normed(), None
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    training.owns(model, optimizer)
    for step in training.steps():
        optimizer.zero_grad()
        loss = model(training.batch(step, 6, 8)).pow(2).mean()
        loss.backward()
        training.went_back(step, loss)
        optimizer.step()
        if average is None:
            average = copy.deepcopy(model)
            training.owns(model, average, optimizer)
        else:
            with torch.no_grad():
                for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
                    slow.lerp_(fast, 0.1)
                average.eval()(torch.randn(6, 8))
        training.updated(step)


def sparse(training: Training) -> None:
    model = Bag()
    rows = torch.optim.SparseAdam(model.words.parameters(), lr=0.01)
    rest = torch.optim.AdamW(model.head.parameters(), lr=0.01)
    training.owns(model, rows, rest)
    for step in training.steps():
        rows.zero_grad()
        rest.zero_grad()
        loss = model(torch.randint(50, (6, 5)), training.batch(step, 6, 5)).pow(2).mean()
        loss.backward()
        training.went_back(step, loss)
        rows.step()
        rest.step()
        training.updated(step)


def own_training_step(training: Training) -> None:
    model = OwnSteps()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    training.owns(model, optimizer)
    for step in training.steps():
        loss = model.training_step(training.batch(step, 6, 8))
        optimizer.zero_grad()
        loss.backward()
        training.went_back(step, loss)
        optimizer.step()
        training.updated(step)


def subclassed(training: Training) -> None:
    model = nn.Linear(8, 1)
    model.weight = nn.Parameter(model.weight.detach().as_subclass(Marked))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=False)
    training.owns(model, optimizer)
    for step in training.steps():
        optimizer.zero_grad()
        loss = model(training.batch(step, 6, 8).as_subclass(Marked)).pow(2).mean()
        loss.backward()
        training.went_back(step, loss.as_subclass(Tensor))
        optimizer.step()
        training.updated(step)


@dataclass(frozen=True)
class Case:
    """A loop, and the note that the watcher makes about it."""

    name: str
    loop: Callable[[Training], None]
    note: str | None = None


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

SPARSE = "the gradient of words.weight is sparse: what is measured element by element is not"
SECOND_MODEL = "outputs of modules are looked at in steps of main only, for the models it updates"
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
SCALED = [
    Case("scaler", scaled(lambda parameters: torch.optim.AdamW(parameters, lr=0.01))),
    Case("scaler-fused", scaled(lambda parameters: torch.optim.AdamW(parameters, lr=0.01, fused=True))),
]


@pytest.mark.parametrize("policy", telling(["observe", "stop"], ["stop"]))
@pytest.mark.parametrize("case", [*CASES, *SCALED], ids=lambda case: case.name)
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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_planted_nan_is_recorded_and_the_loop_left_alone(case: Case, tmp_path: Path) -> None:
    bare = train(case, nan_at=NAN_AT)
    with watching(tmp_path / "run", "observe") as watcher:
        watched = train(case, nan_at=NAN_AT)
    assert watched.lines == bare.lines
    assert watcher.incidents
    assert open_bundle(watcher.incidents[0]).incident.step == NAN_AT
    assert open_run(tmp_path / "run").window().steps.tolist() == list(range(1, STEPS + 1))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
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
