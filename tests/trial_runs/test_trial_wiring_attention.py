"""Trials of masks, scores and positions, on small real loops: each removes its fault, or says why not."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from wiring_trials import (  # noqa: E402
    EVERY,
    LENGTH,
    STEPS,
    TOKENS,
    Reads,
    _plain_process,  # noqa: F401 (an autouse fixture)
    case_of,
    long,
    long_case,
    named,
    tried,
    why_not,
)

from replaying import Loop, record  # noqa: E402


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
