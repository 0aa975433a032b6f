"""Tokens that are added to a table that stays frozen, read in the source, and others."""

from __future__ import annotations

import textwrap
from types import SimpleNamespace
from typing import cast

import pytest
from torch import nn

from steadytrain.capture.looks.script_reading import mistakes
from steadytrain.capture.looks.trained_elements import frozen_tables
from steadytrain.capture.step.optimizer_streams import Stream

NAME = "frozen-new-tokens"
ADDED = 'tokenizer.add_special_tokens({"additional_special_tokens": ["<a>", "<b>"]})\n'
RESIZED = "model.resize_token_embeddings(len(tokenizer))\n"
GROWN = """
big = nn.Embedding(words + 4, width)
with torch.no_grad():
    big.weight[:words].copy_(model.table.weight)
model.table = big
"""
FROZEN = """
for weight in model.parameters():
    weight.requires_grad_(False)
"""
PUT = "model.head = LoRALinear(model.head)\n"
SICK = {
    "of peft": ADDED + RESIZED + 'model = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj"]))\n',
    "by hand": GROWN + FROZEN + PUT,
    "frozen by a function": "def freeze(model):" + textwrap.indent(FROZEN, "    ") + GROWN + "freeze(model)\n" + PUT,
    "all but adapters": GROWN
    + PUT
    + """
for name, weight in model.named_parameters():
    weight.requires_grad = "lora" in name
""",
}
HEALTHY = {
    "padding alone": 'tokenizer.add_special_tokens({"pad_token": "[PAD]"})\n'
    + RESIZED
    + "model = get_peft_model(model, LoraConfig(r=8))\n",
    "saved beside the adapter": ADDED
    + RESIZED
    + 'model = get_peft_model(model, LoraConfig(r=8, modules_to_save=["embed_tokens", "lm_head"]))\n',
    "trainable rows": ADDED
    + RESIZED
    + "model = get_peft_model(model, LoraConfig(r=8, trainable_token_indices=new_ids))\n",
    "an adapter on the table": ADDED
    + RESIZED
    + 'model = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj", "embed_tokens"]))\n',
    "thawed": GROWN + FROZEN + PUT + "model.table.weight.requires_grad_(True)\n",
    "all but adapters and the table": GROWN
    + PUT
    + """
for name, weight in model.named_parameters():
    weight.requires_grad = "lora" in name or "embed" in name
""",
    "grown after it was frozen": FROZEN + GROWN + PUT,
    "no tokens": "model = get_peft_model(model, LoraConfig(r=8))\n" + RESIZED,
    "no adapters": GROWN + FROZEN,
}


def found(source: str) -> list[str]:
    return [rule for rule, _ in mistakes(textwrap.dedent(source), {}) if rule == NAME]


@pytest.mark.parametrize("source", SICK.values(), ids=SICK)
def test_frozen_rows(source: str) -> None:
    assert found(source) == [NAME]


@pytest.mark.parametrize("source", HEALTHY.values(), ids=HEALTHY)
def test_others_are_left_alone(source: str) -> None:
    assert found(source) == []


@pytest.mark.parametrize("frozen", [True, False])
def test_the_largest_table_is_looked_at(frozen: bool) -> None:
    model = nn.ModuleDict({"words": nn.Embedding(20, 4).requires_grad_(not frozen), "places": nn.Embedding(8, 4)})
    stream = cast("Stream", SimpleNamespace(roots=lambda: [model]))
    assert list(frozen_tables(stream)) == ([("frozen-table:words", 20.0)] if frozen else [])
