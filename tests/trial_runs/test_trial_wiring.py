"""Trials of the wiring, on small real loops: one on which each removes the fault, one on which it says why not."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from replaying import Loop, plain_process, record  # noqa: E402
from steadytrain.experiments.case import Case  # noqa: E402
from steadytrain.experiments.specs import NotApplicable, Outcome, Verdict  # noqa: E402
from steadytrain.experiments.trial_catalog import trial  # noqa: E402
from steadytrain.storage.tape_files import Recording  # noqa: E402
from trial_cases import finite_case  # noqa: E402
from trying import attempt  # noqa: E402

STEPS, EVERY = 40, 4
TOKENS, LENGTH = 12, 8


@pytest.fixture(autouse=True)
def _plain_process() -> Iterator[None]:
    with plain_process():
        yield


def long(loop: Loop) -> Any:
    """The same by another way: tried in `make test-all` only."""
    return pytest.param(loop, marks=pytest.mark.long)


def named(loop: Loop) -> str:
    return loop.__name__


def case_of(symptom: str, onset: int, **facts: Any) -> Case:
    """A case of a loop that was recorded whole, with its snapshots."""
    begins = tuple(range(1, STEPS, EVERY))
    made = finite_case(begins=begins, taped=((1, STEPS),), onset=onset, step=onset, facts=facts, after=STEPS - onset)
    found = replace(made.symptom, name=symptom, first_step=onset)
    return replace(made, symptom=found, symptoms=(found,))


def tried(name: str, loop: Loop, recording: Recording, case: Case) -> tuple[Verdict, list[Outcome]]:
    """The verdict of a trial of this loop beside the unchanged replay."""
    control, outcomes = [], []
    for which, into in (("unchanged", control), (name, outcomes)):
        plan = trial(which).plan(case)
        assert not isinstance(plan, NotApplicable), plan.why
        for spec in plan:
            assert spec.begin is not None
            outcome = attempt(loop, recording, spec.schedule, *spec.changes, begin=spec.begin)
            into.append(replace(outcome, spec=spec))
    assert control[0].exact is True
    return trial(name).judge(case, control, outcomes), outcomes


def why_not(name: str, **facts: Any) -> str:
    plan = trial(name).plan(case_of("loss-spike", 30, **facts))
    assert isinstance(plan, NotApplicable)
    return plan.why


# A backward by hand.


def wrong() -> Any:
    """A new class each time: a change replaces what it finds for good."""

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * x.abs()

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return -2 * gradient * x.abs()

    return Wrong


def leaves() -> Any:
    class Leaves(torch.autograd.Function):
        @staticmethod
        def forward(x: Tensor) -> Tensor:
            return torch.from_numpy(x.detach().numpy() * 2)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return 2 * gradient

    return Leaves


def by_hand(operation: Any = wrong) -> None:
    torch.manual_seed(0)
    kind = operation()
    net, head = nn.Linear(6, 16), nn.Linear(16, 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(STEPS):
        x = torch.randn(32, 6)
        loss = functional.mse_loss(head(kind.apply(net(x))), x[:, :1] * x[:, :1].abs())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def leaving() -> None:
    by_hand(leaves)


def test_the_derivative_that_torch_finds(tmp_path: Path) -> None:
    recording = record(by_hand, tmp_path / "run", every=EVERY)
    case = case_of("no-learning", 8, custom_operations=["Wrong"])
    verdict, _ = tried("reference-operation", by_hand, recording, case)
    assert verdict.effect == "removed", verdict


@pytest.mark.long
def test_a_forward_that_leaves_torch_has_no_derivative_to_find(tmp_path: Path) -> None:
    recording = record(leaving, tmp_path / "run", every=EVERY)
    verdict, _ = tried(
        "reference-operation", leaving, recording, case_of("no-learning", 8, custom_operations=["Leaves"])
    )
    assert verdict.effect == "not-run"
    assert "cannot differentiate the forward of Leaves" in verdict.why
    assert "backward of its own" in why_not("reference-operation", custom_operations=[])


# A graph that is cut.


class Cut(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.encoder, self.head, self.how = nn.Linear(16, 1), nn.Linear(1, 1), how

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "no-grad":
            with torch.no_grad():
                code = self.encoder(x)
            return self.head(code)
        code = self.encoder(x)
        code = code.detach() if self.how == "detach" else code.data  # cut
        return self.head(code)


def cut(how: str = "detach") -> None:
    torch.manual_seed(0)
    net = Cut(how)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
    for _ in range(STEPS):
        x = torch.randn(32, 16)
        loss = functional.mse_loss(net(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def cut_by_data() -> None:
    cut("data")


def cut_by_no_grad() -> None:
    cut("no-grad")


def line_of_cut() -> str:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return f"{Path(__file__).name}:{next(at for at, line in enumerate(lines, 1) if line.endswith('# cut'))}: code = ..."


@pytest.mark.parametrize("loop", [cut, long(cut_by_data), long(cut_by_no_grad)], ids=named)
def test_gradients_pass_where_the_graph_was_cut(loop: Loop, tmp_path: Path) -> None:
    recording = record(loop, tmp_path / "run", every=EVERY)
    facts: dict[str, Any] = {"parameters_without_gradient": ["encoder.weight", "encoder.bias"]}
    facts |= {"no_grad_calls": ["encoder"]} if loop is cut_by_no_grad else {"detached_calls": [line_of_cut()]}
    verdict, _ = tried("reattach", loop, recording, case_of("no-learning", 8, **facts))
    assert verdict.effect == "removed", verdict


@pytest.mark.long
def test_a_cut_elsewhere_or_through_numpy_is_not_joined(tmp_path: Path) -> None:
    recording = record(cut, tmp_path / "run", every=EVERY)
    facts = {"parameters_without_gradient": ["encoder.weight"], "detached_calls": ["test_other.py:3: x = y.detach()"]}
    verdict, _ = tried("reattach", cut, recording, case_of("no-learning", 8, **facts))
    assert (verdict.effect, verdict.why) == ("not-run", "nothing is detached at these lines")
    facts["detached_calls"] = ["train.py:3: code = torch.tensor(code.detach().numpy())"]
    assert "leaves torch" in why_not("reattach", **facts)
    assert "every trainable parameter" in why_not("reattach", detached_calls=["train.py:3: x.detach()"])
    assert "nothing was seen" in why_not("reattach")


# Attention.


class Reads(nn.Module):
    """One layer of attention over tokens and places."""

    def __init__(self, mask: bool, fused: bool) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(TOKENS, 32), nn.Embedding(LENGTH, 32)
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, TOKENS)
        self.mask, self.fused = mask, fused

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.places.weight[: ids.shape[1]]
        q, k, v = self.qkv(x).chunk(3, -1)
        if self.fused:
            return self.out(x + functional.scaled_dot_product_attention(q, k, v, is_causal=self.mask))
        scores = q @ k.transpose(1, 2) / math.sqrt(32)
        if self.mask:
            scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -math.inf)
        return self.out(x + scores.softmax(-1) @ v)


def read(mask: bool = False, fused: bool = True, shift: int = 1, steps: int = 80) -> None:
    torch.manual_seed(0)
    net = Reads(mask, fused)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(steps):
        ids = torch.randint(0, TOKENS, (32, LENGTH))
        logits = net(ids)
        loss = functional.cross_entropy(logits[:, : LENGTH - shift].flatten(0, 1), ids[:, shift:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def looks_ahead() -> None:
    read()


def looks_ahead_by_hand() -> None:
    read(fused=False)


def masked() -> None:
    read(mask=True)


def long_case(**facts: Any) -> Case:
    case = case_of("loss-collapse", 70, **{"uniform_loss": math.log(TOKENS), **facts})
    return replace(case, begins=tuple(range(1, 80, EVERY)), taped=((1, 80),), after=10)


@pytest.mark.parametrize("loop", [looks_ahead, long(looks_ahead_by_hand)], ids=named)
def test_a_skill_that_rests_on_looking_ahead(loop: Loop, tmp_path: Path) -> None:
    recording = record(loop, tmp_path / "run", every=EVERY)
    case = long_case(causal_gradient=0.5, label_shift_trained=1)
    verdict, _ = tried("causal-mask", loop, recording, case)
    assert verdict.effect == "removed", verdict
    assert verdict.numbers["first_loss"] > 2 * verdict.numbers["control_first_loss"]


@pytest.mark.long
def test_a_mask_that_is_there_is_not_given_again(tmp_path: Path) -> None:
    recording = record(masked, tmp_path / "run", every=EVERY)
    verdict, _ = tried("causal-mask", masked, recording, long_case(causal_gradient=0.5, label_shift_trained=1))
    assert (verdict.effect, verdict.why[:12]) == ("not-run", "no attention")
    assert "no output depends" in why_not("causal-mask", causal_gradient=0.0)
    assert "may be meant" in why_not("causal-mask", causal_gradient=1.0)
    assert "not measured" in why_not("causal-mask")


# Attention whose scores are too large.


class Sharp(nn.Module):
    """Attention of one head that learns what it would say if its queries and keys were not ``times`` as large.

    It gives the loss itself, so that a replay feeds all that the loss is made of.
    """

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.qk, self.out, self.fused = nn.Linear(16, 64, bias=False), nn.Linear(16, 1), fused
        with torch.no_grad():
            self.qk.weight.mul_(4)
            self.out.weight.zero_()

    def forward(self, x: Tensor, times: Tensor) -> Tensor:
        with torch.no_grad():
            wanted = self.mixed(x, torch.ones(())).sum(-1, keepdim=True)
        return functional.mse_loss(self.out(self.mixed(x, times)), wanted)

    def mixed(self, x: Tensor, times: Tensor) -> Tensor:
        q, k = (self.qk(x) * times).chunk(2, -1)
        if self.fused:
            return functional.scaled_dot_product_attention(q[:, None], k[:, None], x[:, None])[:, 0]
        return (q @ k.transpose(1, 2) / math.sqrt(32)).softmax(-1) @ x


def grown(times: float = 4.0, fused: bool = True) -> None:
    """Queries and keys grow at step 20; what they have to look at stays what it was."""
    torch.manual_seed(0)
    net = Sharp(fused)
    optimizer = torch.optim.Adam(net.out.parameters(), lr=0.1)
    for step in range(STEPS):
        loss = net(torch.randn(64, 6, 16), torch.tensor(times if step >= 20 else 1.0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def grown_by_hand() -> None:
    grown(fused=False)


def not_grown() -> None:
    grown(times=1.0)


@pytest.mark.parametrize("loop", [grown, long(grown_by_hand)], ids=named)
def test_scores_that_grew_are_clipped_to_what_they_were(loop: Loop, tmp_path: Path) -> None:
    recording = record(loop, tmp_path / "run", every=EVERY)
    verdict, _ = tried("qk-clip", loop, recording, case_of("divergence", 21))
    assert verdict.effect == "removed", verdict


@pytest.mark.long
def test_scores_below_the_limit_are_left_alone(tmp_path: Path) -> None:
    recording = record(not_grown, tmp_path / "run", every=EVERY)
    verdict, _ = tried("qk-clip", not_grown, recording, case_of("divergence", 21))
    assert (verdict.effect, verdict.why) == (
        "not-run",
        "no score of attention by torch's functions is above the limit",
    )


# Labels.


def shifted_twice() -> None:
    """Tokens that count up: the next is certain, and so is the one after; the model learns the latter."""
    torch.manual_seed(0)
    net = Reads(True, True)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(STEPS):
        ids = (torch.randint(0, TOKENS, (32, 1)) + torch.arange(LENGTH)) % TOKENS
        loss = functional.cross_entropy(net(ids)[:, :-2].flatten(0, 1), ids[:, 2:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_labels_that_are_the_next_tokens_are_learned(tmp_path: Path) -> None:
    recording = record(shifted_twice, tmp_path / "run", every=EVERY)
    case = case_of("plateau", 12, label_shift_trained=2)
    verdict, outcomes = tried("shift-labels", shifted_twice, recording, case)
    assert verdict.effect == "removed", verdict
    assert [one.spec.repeat for one in outcomes] == [0, 1]
    assert outcomes[0].probes[0].loss == outcomes[1].probes[0].loss
    assert verdict.numbers["final_excess"] < -0.3
    assert "next tokens already" in why_not("shift-labels", label_shift_trained=1)
    assert "no tokens of the inputs" in why_not("shift-labels")


def leaked(told: bool = True) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(7, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(80):
        x = torch.randn(64, 7)
        labels = torch.randint(0, 4, (64,)) if told else x[:, :4].argmax(1)
        x[:, 6] = labels.float() if told else x[:, 6]
        loss = functional.cross_entropy(net(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def not_leaked() -> None:
    leaked(told=False)


def test_a_skill_that_rests_on_a_column(tmp_path: Path) -> None:
    recording = record(leaked, tmp_path / "run", every=EVERY)
    case = long_case(labels_leaked=[{"input": 6, "share": 1.0}], uniform_loss=math.log(4))
    verdict, _ = tried("shuffle-column", leaked, recording, case)
    assert verdict.effect == "removed", verdict
    recording = record(not_leaked, tmp_path / "other", every=EVERY)
    verdict, _ = tried("shuffle-column", not_leaked, recording, case)
    assert verdict.effect == "persists", verdict
    assert "no input column" in why_not("shuffle-column", labels_leaked=[])


# Experts.


class Mixture(nn.Module):
    def __init__(self, favoured: bool) -> None:
        super().__init__()
        self.router = nn.Linear(8, 4)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.head = nn.Linear(8, 4)
        if favoured:
            nn.init.constant_(self.router.bias[:1].data, 3.0)

    def forward(self, x: Tensor) -> Tensor:
        shares = self.router(x).softmax(-1)
        weight, chosen = shares.max(-1)
        parts = [(chosen == at).float()[:, None] * expert(x) for at, expert in enumerate(self.experts)]
        return self.head(x + weight[:, None] * sum(parts))


def mix(favoured: bool = True) -> None:
    torch.manual_seed(0)
    net = Mixture(favoured)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(80):
        x = torch.randn(64, 8)
        loss = functional.cross_entropy(net(x), x[:, :4].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def mix_fairly() -> None:
    mix(favoured=False)


def test_a_balancing_loss_evens_the_load_out(tmp_path: Path) -> None:
    recording = record(mix, tmp_path / "run", every=EVERY)
    case = replace(long_case(router_share={"router": 1.0}), onset=30, after=50)
    verdict, outcomes = tried("balance-router", mix, recording, case)
    assert verdict.effect == "removed", verdict
    assert outcomes[0].measured["load"] > 3
    recording = record(mix_fairly, tmp_path / "other", every=EVERY)
    verdict, _ = tried("balance-router", mix_fairly, recording, case)
    assert (verdict.effect, "no collapse to remove" in verdict.why) == ("inconclusive", True)
    assert "no router" in why_not("balance-router")


# Positions.


class Placed(nn.Module):
    """Writes the token of two places before; only places tell which one that is."""

    def __init__(self, dtype: torch.dtype, body: torch.dtype) -> None:
        super().__init__()
        places = torch.arange(600, 608, dtype=dtype).float()
        rates = torch.exp(-math.log(100) * torch.arange(16) / 16)
        angles = places[:, None] * rates
        self.register_buffer("position_table", torch.cat([angles.sin(), angles.cos()], 1))
        self.words, self.out = nn.Embedding(TOKENS, 32), nn.Linear(32, TOKENS)
        self.query, self.key = nn.Linear(32, 32, bias=False), nn.Linear(32, 32, bias=False)
        self.to(body)

    def forward(self, ids: Tensor) -> Tensor:
        where = self.position_table
        mixed = functional.scaled_dot_product_attention(
            self.query(where)[None], self.key(where)[None], self.words(ids), scale=1.0
        )
        return self.out(mixed)


def placed(dtype: torch.dtype = torch.bfloat16, body: torch.dtype = torch.float32) -> None:
    torch.manual_seed(0)
    net = Placed(dtype, body)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(80):
        ids = torch.randint(0, TOKENS, (32, LENGTH))
        loss = functional.cross_entropy(net(ids)[:, 2:].flatten(0, 1).float(), ids[:, :-2].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def placed_in_half() -> None:
    placed(torch.float32, torch.bfloat16)


def placed_well() -> None:
    placed(torch.float32)


def test_positions_in_float32_can_be_told_apart(tmp_path: Path) -> None:
    recording = record(placed, tmp_path / "run", every=EVERY)
    case = replace(long_case(positions_equal={"position_table": [0, 1]}), onset=30, after=50)
    found = replace(case.symptom, name="plateau", first_step=30)
    case = replace(case, symptom=found, symptoms=(found,))
    verdict, _ = tried("float32-positions", placed, recording, case)
    assert verdict.effect == "removed", verdict
    assert "no table of positions" in why_not("float32-positions", positions_equal={})


@pytest.mark.long
def test_a_table_that_a_cast_made_coarse_is_as_it_was_registered(tmp_path: Path) -> None:
    recording = record(placed_in_half, tmp_path / "run", every=EVERY)
    case = replace(long_case(positions_low_precision={"position_table": "bfloat16"}), onset=60, after=4)
    verdict, outcomes = tried("float32-positions", placed_in_half, recording, case)
    assert outcomes[0].ran, verdict
    recording = record(placed_well, tmp_path / "other", every=EVERY)
    verdict, _ = tried("float32-positions", placed_well, recording, case)
    assert (verdict.effect, verdict.why) == ("not-run", "no positions are made or kept in 16 bits")


def test_trials_of_several_ranks_say_why_they_are_not_run() -> None:
    for name in ("one-rank", "synchronize"):
        assert "one process" in why_not(name, ranks=1)
        assert "not on a tape" in why_not(name, ranks=4)
