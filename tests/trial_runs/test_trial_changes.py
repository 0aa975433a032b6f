"""Every change: its effect is real, its values are checked, and without it a run is the control to the last bit."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from changed_loops import (  # noqa: E402
    BEGIN,
    EVERY,
    STEPS,
    _plain_process,  # noqa: F401 (an autouse fixture)
    broadcasts,
    broadcasts_by_hand,
    classify,
    coded,
    noised_twice,
    softened_twice,
)
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from replaying import Loop, record  # noqa: E402
from steadytrain.core.errors import UsageError  # noqa: E402
from steadytrain.experiments.case import Case  # noqa: E402
from steadytrain.experiments.specs import Change, Entry, NotApplicable, Outcome  # noqa: E402
from steadytrain.experiments.trial_catalog import trials  # noqa: E402
from steadytrain.storage.tape_files import Recording  # noqa: E402
from steadytrain.trial_runs.changes import change_kinds, make  # noqa: E402
from steadytrain.trial_runs.changes.singular_points import SafeOperation  # noqa: E402
from steadytrain.trial_runs.server_process import ServerProcess  # noqa: E402
from trying import attempt, losses, trained  # noqa: E402


def in_bfloat16() -> None:
    classify(torch.bfloat16)


def under_autocast() -> None:
    classify(autocast=torch.float16, scaled=True, clip=True)


class Attends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(9, 8)
        self.head = nn.Linear(8, 9)
        self.twin = nn.Linear(8, 9)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        x = self.words(ids) * 8
        mask = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril(-1)
        weights = (x @ x.transpose(1, 2)).masked_fill(~mask, -math.inf)
        weights = weights[:, 1:].softmax(-1)
        x = functional.scaled_dot_product_attention(x, x, x, is_causal=True)[:, 1:] + weights @ x
        return self.head(x), self.twin(x)


def attend(*, twin: bool = True, zeroed: bool = True, parts: int = 1) -> None:
    torch.manual_seed(0)
    net = Attends()
    optimizer = torch.optim.Adam([*net.words.parameters(), *net.head.parameters()], lr=0.02)
    for _ in range(STEPS):
        for _ in range(parts):
            ids = torch.randint(0, 9, (4, 5))
            logits, other = net(ids)
            loss = functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
            if twin:
                loss = loss + functional.nll_loss(other.flatten(0, 1).log_softmax(-1), ids[:, 1:].flatten())
            loss.backward()
        optimizer.step()
        if zeroed:
            optimizer.zero_grad()


def not_zeroed() -> None:
    attend(zeroed=False)


def accumulated() -> None:
    attend(parts=3)


def chase() -> None:
    """Targets of a shallow copy."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    target = copy.copy(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(STEPS):
        inputs = torch.randn(8, 4)
        values = net(inputs)
        with torch.no_grad():
            wanted = 1 + 0.9 * target(inputs)
        functional.mse_loss(values, wanted).backward()
        optimizer.step()
        optimizer.zero_grad()


def regress() -> None:
    """A logarithm near its singular point."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(STEPS):
        x = torch.randn(6, 4)
        out = net(x)
        loss = functional.mse_loss(out, x.sum(1, keepdim=True)) + (out.relu() + 1e-8).log().mean() * 1e-3
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def bounded() -> None:
    """Targets of both signs behind a ReLU."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1), nn.ReLU())
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(STEPS):
        x = torch.randn(6, 4)
        loss = functional.mse_loss(net(x).squeeze(-1), x.sum(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def smoothed() -> None:
    """Dropout between two layers, and labels that are smoothed."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 5))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(STEPS):
        x = torch.randn(6, 4)
        loss = functional.cross_entropy(net(x), x.argmax(1), label_smoothing=0.2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def masked_as_a_whole() -> None:
    """The first row sees nothing, its result is thrown away and its gradient is not finite all the same."""
    torch.manual_seed(0)
    net = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(STEPS):
        scores = net(torch.randn(4, 4)).masked_fill(~torch.ones(4, 4, dtype=torch.bool).tril(-1), -math.inf)
        loss = (scores.softmax(-1)[1:] * torch.arange(4.0)).sum()
        optimizer.zero_grad()
        loss.backward()
        for parameter in net.parameters():
            parameter.grad = torch.nan_to_num(parameter.grad)
        optimizer.step()


# kind, values, loop
CASES: list[tuple[str, dict[str, Any], Loop]] = [
    ("learning-rate", {"factor": 0.1}, classify),
    ("fixed-learning-rate", {"value": 0.3}, classify),
    ("ramp-learning-rate", {"steps": 6}, classify),
    ("beta2", {"value": 0.5}, classify),
    ("momentum", {"value": 0.1}, classify),
    ("no-dropout", {}, smoothed),
    ("no-smoothing", {}, smoothed),
    ("epsilon", {"factor": 1e6}, classify),
    ("weight-decay", {"factor": 0.0}, classify),
    ("clip-gradients", {"max_norm": 1e-12}, broadcasts),
    ("clip-updates", {}, broadcasts),
    ("reset-moments", {}, classify),
    ("freeze-layer", {"layers": ["head"]}, classify),
    ("shrink-gradients", {"layers": ["head"], "factor": 0.1}, classify),
    ("zero-gradients", {}, not_zeroed),
    ("optimize-all", {}, attend),
    ("thaw", {}, classify),
    ("loss-scale", {"factor": 2.0**40}, under_autocast),
    ("unscale-first", {"max_norm": 1e-3}, under_autocast),
    ("one-ulp", {}, classify),
    ("random-step", {"share": 1e-3, "seed": 1}, classify),
    ("other-seed", {"seed": 3}, classify),
    ("float32", {}, in_bfloat16),
    ("float32", {}, under_autocast),
    ("bfloat16-for-float16", {}, under_autocast),
    ("float32-island", {"modules": ["head"]}, under_autocast),
    ("float32-island", {"modules": ["head"]}, in_bfloat16),
    ("master-weights", {}, in_bfloat16),
    ("float64-loss", {}, attend),
    ("math-attention", {}, attend),
    ("attention-softcap", {"cap": 2.0}, attend),
    ("safe-softmax", {}, masked_as_a_whole),
    ("safe-operation", {"margin": 1e-3}, regress),
    ("z-loss", {"weight": 0.5}, attend),
    ("loss-term-zero", {"number": 1}, classify),
    ("loss-from-logits", {}, softened_twice),
    ("match-shapes", {}, broadcasts),
    ("match-shapes", {}, broadcasts_by_hand),
    ("same-noise", {}, noised_twice),
    ("fill-codes", {}, coded),
    ("ignore-label", {"label": 3}, classify),
    ("leaky-units", {"slope": 0.5}, classify),
    ("mode", {"mode": "eval"}, classify),
    ("layer-norm", {}, classify),
    ("reinitialize", {}, classify),
    ("reinitialize", {"he": True}, classify),
    ("retie", {"pairs": ["head.weight", "twin.weight"]}, attend),
    ("own-parameters", {}, chase),
    ("synthetic-batch", {"steps": [7]}, classify),
    ("smaller-batch", {"divisor": 2}, classify),
    ("accumulation-one", {}, accumulated),
    ("accumulation-mean", {}, accumulated),
    ("scale-targets", {"factor": 0.1}, regress),
    ("scale-inputs", {}, regress),
    ("linear-output", {}, bounded),
    ("clip-per-tensor", {"warm_up": 2, "level": 1e-3}, classify),
    ("clip-by-z-score", {"warm_up": 2, "z_max": 0.01}, not_zeroed),
    ("shrink-embedding-gradient", {"share": 0.5}, not_zeroed),
    ("float32-calls", {"modules": ["head"]}, under_autocast),
    ("dynamic-loss-scale", {"scale": 2.0**40}, under_autocast),
]
SAME_TO_THE_LAST_BIT = {"math-attention", "safe-softmax"}
"""Changes that need not change the losses of these loops."""

ELSEWHERE = {
    "balance-router",
    "batch-first",
    "causal-mask",
    "clip-query-key-weights",
    "deterministic",
    "eager",
    "float32-norms",
    "float32-positions",
    "hide-labels",
    "offset-tokens",
    "one-thread",
    "one-worker",
    "operation-as-before",
    "opposite-mask",
    "preserve-random-state",
    "uncached-autocast",
    "wider-integers",
    "kept-changes",
    "qk-clip",
    "reattach",
    "reference-operation",
    "inputs-as-before",
    "keep-rows",
    "safe-samples",
    "own-contexts",
    "old-settings",
    "seed-everything",
    "shift-labels",
    "shuffle-column",
}
"""Changes that have a test of their own."""

_recordings: dict[str, tuple[Recording, Outcome]] = {}


def recorded(loop: Loop, folder: pytest.TempPathFactory) -> tuple[Recording, Outcome]:
    name = loop.__name__
    if name not in _recordings:
        recording = record(loop, folder.mktemp(name) / "run", every=EVERY)
        _recordings[name] = recording, attempt(loop, recording, trained(*range(BEGIN + 1, STEPS + 1)), begin=BEGIN)
    return _recordings[name]


QUICK_EVERY = 3
"""One change of three is tried in `make test`, all of them in `make test-all`."""


@pytest.mark.parametrize(
    ("kind", "values", "loop"),
    [
        pytest.param(*case, id=f"{case[0]}-{case[2].__name__}", marks=pytest.mark.long if place % QUICK_EVERY else [])
        for place, case in enumerate(CASES)
    ],
)
def test_a_change_is_real_and_leaves_no_trace(
    kind: str, values: dict[str, Any], loop: Loop, tmp_path_factory: pytest.TempPathFactory
) -> None:
    recording, control = recorded(loop, tmp_path_factory)
    assert control.ran, control.why_not
    assert control.exact is True
    changed = attempt(loop, recording, trained(*range(BEGIN + 1, STEPS + 1)), Change(kind, values), begin=BEGIN)
    assert changed.ran, changed.why_not
    assert (losses(changed) != losses(control)) is (kind not in SAME_TO_THE_LAST_BIT)
    again = attempt(loop, recording, trained(*range(BEGIN + 1, STEPS + 1)), begin=BEGIN)
    assert again == control


def test_every_change_is_tried() -> None:
    assert {kind for kind, _, _ in CASES} | ELSEWHERE == set(change_kinds())


def test_the_desk_hears_from_the_server_which_changes_need_a_launch_of_their_own(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path)
    try:
        early = server.early_kinds()
    finally:
        server.close()
    assert {"one-worker", "seed-everything", "deterministic", "float32-positions", "keep-rows", "safe-samples"} == early
    assert {kind for kind, cls in change_kinds().items() if cls.is_early} == early


def test_probes_see_the_scripts_own_loss(tmp_path: Path) -> None:
    recording = record(attend, tmp_path / "run", every=EVERY)
    schedule = [Entry(3, "probe"), *trained(6, 7)]
    control = attempt(attend, recording, schedule)
    for change in (Change("z-loss", {"weight": 0.5}), Change("loss-term-zero", {"number": 0})):
        changed = attempt(attend, recording, schedule, change)
        assert changed.probes == control.probes
        assert losses(changed) != losses(control)


def test_one_thread(tmp_path: Path) -> None:
    recording = record(regress, tmp_path / "run", every=EVERY)
    assert attempt(regress, recording, trained(6), Change("one-thread")).why_not == "it runs on one thread already"
    torch.set_num_threads(2)
    assert attempt(regress, recording, trained(6), Change("one-thread")).ran


@pytest.mark.parametrize(
    ("kind", "values", "said"),
    [
        ("no-such-change", {}, "no change is called"),
        ("learning-rate", {}, "'factor' is missing"),
        ("learning-rate", {"factor": -1.0}, "at least 0"),
        ("learning-rate", {"factor": math.nan}, "at least 0"),
        ("learning-rate", {"factor": "much"}, "must be float"),
        ("learning-rate", {"factor": 1.0, "times": 2}, "no value 'times'"),
        ("beta2", {"value": 1.0}, "between 0 and 1"),
        ("ramp-learning-rate", {"steps": 1.5}, "must be int"),
        ("mode", {"mode": "sleep"}, "one of train, eval"),
        ("freeze-layer", {"layers": "head"}, "must be a list of str"),
        ("freeze-layer", {"layers": []}, "at least one name"),
        ("synthetic-batch", {"steps": ["a"]}, "must be a list of int"),
        ("retie", {"pairs": ["one"]}, "names in pairs"),
    ],
)
def test_values_are_checked(kind: str, values: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        make(Change(kind, values))


def test_the_changes_of_every_trial_can_be_made(finite_case: Case) -> None:
    planned = 0
    for trial in trials():
        plan = trial.plan(finite_case)
        if not isinstance(plan, NotApplicable):
            planned += 1
            for spec in plan:
                assert spec.trial == trial.name
                for change in spec.changes:
                    make(change)
    assert planned > 45


@pytest.fixture
def finite_case(tmp_path: Path) -> Case:
    from trial_cases import finite_case as made

    return made()


@pytest.mark.parametrize(
    ("name", "kept", "edge"),
    [
        ("atanh", "_inside_one", [0.5, 1.0, -1.0]),
        ("erfinv", "_inside_one", [0.5, 1.0, -1.0]),
        ("logit", "_between_zero_and_one", [0.5, 1.0, 0.0]),
        ("log1p", "_above_minus_one", [0.5, 3.0, -1.0]),
    ],
)
def test_a_safe_operation_is_finite_at_both_ends_and_the_same_within(name: str, kept: str, edge: list[float]) -> None:
    function, values = getattr(torch, name), torch.tensor(edge, requires_grad=True)
    safe = getattr(SafeOperation(), kept)(function, values)
    safe.sum().backward()
    assert values.grad is not None
    assert not function(values).isfinite().all()
    assert safe.isfinite().all()
    assert values.grad.isfinite().all()
    assert torch.equal(safe[0], function(values)[0])
