"""Interventions in the forward: what they compute, and that nothing of them stays once they are taken back."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from by_hand import HEADS, WIDTH, Hand, Training, policy_file, watched
from torch import Tensor, nn
from torch.nn import functional

from gate_loops import same
from steadytrain.core.errors import UsageError
from steadytrain.guard.intervention import kinds
from steadytrain.guard.policy_files import read_policy
from steadytrain.trial_runs.changes.embeddings import ShrinkEmbeddingGradient
from steadytrain.trial_runs.changes.float32_calls import Float32Calls, Float32Norms
from steadytrain.trial_runs.changes.query_key_weights import ClipQueryKeyWeights, attention_of
from steadytrain.trial_runs.launched_script import CannotApplyError, Launched

MADE: dict[str, dict[str, Any]] = {
    "clip-by-z-score": {"z_max": 0.1, "warm_up": 2},
    "clip-per-tensor": {"warm_up": 1, "level": 0.01},
    "float32": {},
    "float32-norms": {},
    "qk-clip": {"limit": 0.05},
    "shrink-embedding-gradient": {},
    "plain-attention": {},
    "check-labels": {},
}
QUIET = ("float32", "float32-norms", "plain-attention", "check-labels")
"""They change nothing but rounding in a training in float32."""


@pytest.mark.parametrize("name", MADE)
def test_taken_back_the_run_goes_on_bit_for_bit(name: str, tmp_path: Path) -> None:
    training, plain = Training(), functional.scaled_dot_product_attention
    with watched(tmp_path, training) as watch:
        hand = Hand(watch)
        training.step()
        before = copy.deepcopy(training)
        hand.hold(name, **MADE[name])
        for _ in range(4):
            training.step()
        held = training.model.head.weight.detach().clone()
        hand.let_go(name)
        twin, random = copy.deepcopy(training), torch.get_rng_state()
        losses = [training.step() for _ in range(4)]
    assert functional.scaled_dot_product_attention is plain
    torch.set_rng_state(random)
    assert [twin.step() for _ in range(4)] == losses
    assert same(training.state(), twin.state())
    if name not in QUIET:
        torch.manual_seed(1)
        for _ in range(4):
            before.step()
        assert not torch.equal(held, before.model.head.weight)


def process(model: nn.Module) -> Launched:
    made = Launched()
    made.roots = [model]
    return made


def test_the_gradient_of_an_embedding_is_a_share_and_the_forward_keeps_its_bits() -> None:
    training, made, change = Training(), process(nn.Module()), ShrinkEmbeddingGradient(0.125)
    made.roots = [training.model]
    random = torch.get_rng_state()
    bare = training.loss()
    bare.backward()
    gradients = {name: one.grad.clone() for name, one in training.model.named_parameters() if one.grad is not None}
    training.optimizer.zero_grad()
    torch.set_rng_state(random)
    change.begin(made)
    try:
        loss = training.loss()
        loss.backward()
    finally:
        made.functions.end()
    assert loss.item() == bare.item()
    for name, parameter in training.model.named_parameters():
        assert parameter.grad is not None
        share = 0.125 if name == "words.weight" else 1.0  # a power of two: the product rounds nothing
        assert torch.equal(parameter.grad, share * gradients[name])


class Projected(nn.Module):
    """Attention as in Hugging Face's models: ``q_proj`` and ``k_proj``, and two heads of keys for four of queries."""

    def __init__(self, key_heads: int, *, eager: bool) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.eager = 4, 3, eager
        self.q_proj = nn.Linear(8, 12)
        self.k_proj = nn.Linear(8, 3 * key_heads)

    def scores(self, x: Tensor) -> Tensor:
        query = self.q_proj(x).view(2, 5, 4, 3).transpose(1, 2)
        key = self.k_proj(x).view(2, 5, -1, 3).transpose(1, 2)
        return query @ key.repeat_interleave(4 // key.shape[1], 1).transpose(2, 3) / math.sqrt(3)

    def forward(self, x: Tensor) -> Tensor:
        if self.eager:
            return functional.softmax(self.scores(x), dim=-1)
        query = self.q_proj(x).view(2, 5, 4, 3).transpose(1, 2)
        key = self.k_proj(x).view(2, 5, -1, 3).transpose(1, 2)
        groups = key.shape[1] != 4
        return functional.scaled_dot_product_attention(query, key, key, enable_gqa=groups)


@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.parametrize("key_heads", [4, 2])
def test_scores_above_the_limit_are_at_the_limit_after_the_update(key_heads: int, eager: bool) -> None:
    torch.manual_seed(3)
    model, x = Projected(key_heads, eager=eager), torch.randn(2, 5, 8)
    before = copy.deepcopy(model)
    scores = model.scores(x).detach()
    largest = scores.amax((0, 2, 3))
    limit = float(largest.sort().values[1]) + 1e-3  # two of the four heads are above it
    made, change = process(model), ClipQueryKeyWeights(limit)
    change.begin(made)
    try:
        model(x)
        change.updated(made)
    finally:
        change.end(made)
        made.functions.end()
    factors = [min(1.0, limit / float(one)) for one in largest]
    for head, factor in enumerate(factors):
        share = math.sqrt(factor) if key_heads == 4 else factor
        for rows, old in ((model.q_proj.weight, before.q_proj.weight), (model.q_proj.bias, before.q_proj.bias)):
            expected = old[3 * head : 3 * head + 3] * share
            torch.testing.assert_close(rows[3 * head : 3 * head + 3], expected, rtol=1e-6, atol=0)
    assert torch.equal(model.k_proj.weight, before.k_proj.weight) == (key_heads == 2)
    torch.testing.assert_close(model.scores(x).amax((0, 2, 3)), largest.clamp(max=limit), rtol=1e-5, atol=1e-6)
    state = copy.deepcopy(model.state_dict())
    model(x)
    change.updated(made)
    assert same(model.state_dict(), state)


def test_the_scores_of_a_live_run_stay_below_the_limit(tmp_path: Path) -> None:
    training = Training(spread=8.0)
    seen: list[float] = []

    def look(module: nn.Module, args: Any) -> None:
        weight, bias = module.in_proj_weight, module.in_proj_bias
        query, key = (functional.linear(args[0], weight[at : at + WIDTH], bias[at : at + WIDTH]) for at in (0, WIDTH))
        parts = [one.view(*one.shape[:2], HEADS, -1).transpose(1, 2) for one in (query, key)]
        scores = parts[0] @ parts[1].transpose(2, 3) / math.sqrt(WIDTH // HEADS)
        keep = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        seen.append(scores.detach().masked_fill(~keep, -math.inf).amax().item())

    handle = training.model.attention.register_forward_pre_hook(look)
    policy = policy_file(tmp_path, 'always = ["qk-clip"]\n[interventions.qk-clip]\nlimit = 5.0\n')
    with watched(tmp_path, training, policy=policy):
        losses = [training.step() for _ in range(12)]
    handle.remove()
    assert seen[0] > 10
    assert max(seen[4:]) < 10
    assert losses[-1] < losses[0]


def test_attention_whose_weights_are_not_known_is_refused() -> None:
    with pytest.raises(CannotApplyError, match=r"no nn\.MultiheadAttention"):
        ClipQueryKeyWeights().begin(process(nn.Linear(2, 2)))
    normalized = Projected(4, eager=True)
    normalized.q_norm = nn.LayerNorm(3)
    assert attention_of(normalized) is None


def test_a_module_in_float32_is_the_one_without_autocast() -> None:
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 3))
    x = torch.randn(4, 6)
    with torch.no_grad():
        plain = model(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            narrow = model(x)
            made, whole, last = process(model), Float32Calls(), Float32Calls(["2"])
            whole.begin(made)
            assert torch.equal(model(x), plain)
            whole.end(made)
            last.begin(made)
            wide = model(x)
            last.end(made)
            assert torch.equal(model(x), narrow)
            expected = functional.linear(model[1](model[0](x)).float(), model[2].weight, model[2].bias)
            assert expected.dtype == torch.bfloat16  # still under autocast: the island is not
    assert narrow.dtype == torch.bfloat16
    assert wide.dtype == torch.float32
    with pytest.raises(CannotApplyError, match=r"is in torch\.bfloat16"):
        Float32Calls().begin(process(nn.Linear(2, 2).bfloat16()))
    with pytest.raises(CannotApplyError, match=r"no module is called layers\.7"):
        Float32Calls(["layers.7"]).begin(made)


def test_norms_and_softmax_in_float32_round_once() -> None:
    torch.manual_seed(5)
    norm, x = nn.LayerNorm(64).bfloat16(), (torch.randn(8, 64) * 30 + 200).bfloat16()
    made, change = process(norm), Float32Norms()
    change.begin(made)
    try:
        normalized, soft = norm(x), x.softmax(-1)
    finally:
        made.functions.end()
    assert torch.equal(
        normalized, functional.layer_norm(x.float(), (64,), norm.weight.float(), norm.bias.float()).bfloat16()
    )
    assert torch.equal(soft, x.float().softmax(-1).bfloat16())


def test_a_module_is_named_by_a_text(tmp_path: Path) -> None:
    path = Path(policy_file(tmp_path, 'always = ["float32"]\n[interventions.float32]\nmodule = "layers.*.norm"\n'))
    policy = read_policy(path)
    assert kinds()["float32"](**policy.settings["float32"]).module == "layers.*.norm"
    path.write_text("[interventions.float32]\nmodule = 3\n")
    with pytest.raises(UsageError, match="must be a text"):
        read_policy(path)
