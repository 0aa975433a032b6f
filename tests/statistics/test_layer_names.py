from __future__ import annotations

import numpy as np
import pytest

from steadytrain.core.model import GRADIENT_ABSENT
from steadytrain.statistics.layer_names import experts, is_embedding, is_norm, is_token_embedding, profiles, stacks
from steadytrain.testing import steps
from steadytrain.testing.windows import table

PARTS = ("ln_1.weight", "attn.c_attn.weight", "mlp.c_fc.bias")
GPT = (
    *(f"transformer.h.{block}.{part}" for block in range(3) for part in PARTS),
    "transformer.wte.weight",
    "transformer.ln_f.weight",
    "lm_head.weight",
)


@pytest.mark.parametrize(
    ("name", "token", "any_kind", "norm"),
    [
        ("transformer.wte.weight", True, True, False),
        ("transformer.wpe.weight", False, True, False),
        ("model.embed_tokens.weight", True, True, False),
        ("bert.embeddings.word_embeddings.weight", True, True, False),
        ("bert.embeddings.position_embeddings.weight", False, True, False),
        ("bert.embeddings.LayerNorm.weight", False, True, True),
        ("tok_emb.weight", True, True, False),
        ("shared.weight", True, True, False),
        ("h.0.ln_1.weight", False, False, True),
        ("layers.3.input_layernorm.weight", False, False, True),
        ("bn1.weight", False, False, True),
        ("layers.3.mlp.up_proj.weight", False, False, False),
        ("member.weight", False, False, False),
        ("blender.weight", False, False, False),
    ],
)
def test_what_names_tell(name: str, token: bool, any_kind: bool, norm: bool) -> None:
    assert (is_token_embedding(name), is_embedding(name), is_norm(name)) == (token, any_kind, norm)


@pytest.mark.parametrize(
    ("names", "stack", "blocks"),
    [
        (GPT, "transformer.h.", (0, 1, 2)),
        (("0.weight", "0.bias", "2.weight", "4.weight", "6.weight"), "", (0, 2, 4, 6)),
        (("fc1.weight", "bn1.weight", "fc2.weight", "bn2.weight", "fc3.weight", "bn3.weight"), "fc", (1, 2, 3)),
        (
            tuple(f"layer{stage}.{block}.conv1.weight" for stage in (1, 2, 3, 4) for block in (0, 1)),
            "layer",
            (1, 2, 3, 4),
        ),
        (tuple(f"gpt2.h.{block}.w" for block in (10, 9, 11)), "gpt2.h.", (9, 10, 11)),
        (tuple(f"m.{block}.experts.{expert}.w" for block in range(3) for expert in range(4)), "m.", (0, 1, 2)),
    ],
)
def test_stacks(names: tuple[str, ...], stack: str, blocks: tuple[int, ...]) -> None:
    (found,) = stacks(names)
    assert (found.name, found.numbers) == (stack, blocks)
    assert found.block(0) == f"{stack}{blocks[0]}"


def test_two_blocks_or_names_that_do_not_count_are_no_stack() -> None:
    assert stacks(("h.0.w", "h.1.w")) == ()
    assert stacks(("input.weight", "hidden.weight", "output.weight")) == ()
    assert stacks(()) == ()


def test_experts_of_each_layer() -> None:
    names = tuple(f"m.{block}.mlp.experts.{expert}.{part}" for block in (0, 1) for expert in range(4) for part in "ab")
    first, second = experts(names)
    assert (first.name, first.numbers, first.block(3)) == ("m.0.mlp.experts.", (0, 1, 2, 3), "m.0.mlp.experts.3")
    assert second.members[0].tolist() == [8, 9]


def test_a_profile_joins_the_norms_of_a_block() -> None:
    norms = {"h.0.a": [3.0, 3.0], "h.0.b": [4.0, GRADIENT_ABSENT], "h.1.a": [1.0, np.inf], "h.2.a": [2.0, 2.0]}
    (profile,) = profiles(steps(gradient_norms=norms), apart_steps=1)
    np.testing.assert_allclose(profile.norms, [[5.0, 1.0, 2.0], [3.0, np.nan, 2.0]])
    assert profile.first_to_last().tolist() == [2.5, 1.5]


def test_a_block_without_gradients_is_left_out() -> None:
    norms = {f"h.{block}.a": [1.0] if block else [GRADIENT_ABSENT] for block in range(4)}
    (profile,) = profiles(steps(gradient_norms=norms), apart_steps=1)
    assert profile.stack.numbers == (1, 2, 3)


def test_readings_stand_in_where_steps_have_no_norms() -> None:
    held = table("tensors", at=[50, 100], gradient_norm={f"h.{block}.a": [1.0, 2.0] for block in range(3)})
    (profile,) = profiles(steps(loss=[1.0] * 100, tables={"tensors": held}), apart_steps=16)
    assert profile.steps.tolist() == [50, 100]
    assert profiles(steps(loss=[1.0]), apart_steps=16) == ()
