"""The number formats of real steps: plain, under autocast, in half precision, with a model of transformers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from steadytrain.capture.step.input_recorder import AutocastState
from steadytrain.capture.tensors.precision import logits_dtype, precision_facts


def test_a_plain_step() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    model[0].weight.requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters())
    output = model(torch.ones(1, 4))
    output.sum().backward()
    optimizer.step()
    autocast = AutocastState.take({"cpu"})
    facts = precision_facts(list(model.parameters()), [optimizer], autocast=autocast, logits=logits_dtype(output))
    assert facts["parameters"] == {"torch.float32": 23}
    assert facts["trained_parameters"] == facts["gradients"] == {"torch.float32": 11}
    assert facts["optimizer_state"] == {"torch.float32": 22}
    assert (facts["autocast"], facts["logits"]) == ({}, "torch.float32")


def test_mixed_precision() -> None:
    """Weights of half precision with a momentum of the same; autocast computes in yet another format."""
    model = nn.Linear(4, 2, dtype=torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with torch.autocast("cpu", dtype=torch.float16):
        autocast = AutocastState.take({"cpu"})
        output = model(torch.ones(1, 4))
    output.sum().backward()
    optimizer.step()
    facts = precision_facts(list(model.parameters()), [optimizer], autocast=autocast, logits=logits_dtype(output))
    assert facts["autocast"] == {"cpu": "torch.float16"}
    assert facts["logits"] == "torch.float16"
    assert facts["parameters"] == facts["gradients"] == facts["optimizer_state"] == {"torch.bfloat16": 10}


def test_before_any_step_there_is_no_state_and_no_output() -> None:
    model = nn.Linear(2, 2)
    facts = precision_facts(
        list(model.parameters()), [torch.optim.Adam(model.parameters())], autocast=None, logits=None
    )
    assert (facts["gradients"], facts["optimizer_state"], facts["autocast"], facts["logits"]) == ({}, {}, {}, None)


@pytest.mark.parametrize(
    ("output", "dtype"),
    [
        (torch.ones(2, dtype=torch.float16), "torch.float16"),
        ((torch.ones(1), torch.ones(9, dtype=torch.bfloat16), torch.ones(99, dtype=torch.int64)), "torch.bfloat16"),
        ({"hidden": torch.ones(9), "logits": torch.ones(2, dtype=torch.float16)}, "torch.float16"),
        ({"deep": [{"loss": torch.ones(1, dtype=torch.float64)}]}, "torch.float64"),
        (None, None),
        ("text", None),
        ([torch.ones(3, dtype=torch.int64)], None),
    ],
)
def test_the_format_of_logits(output: object, dtype: str | None) -> None:
    assert logits_dtype(output) == dtype


def test_an_output_that_holds_itself_ends() -> None:
    output: list[object] = []
    output.append(output)
    assert logits_dtype(output) is None


def test_the_output_of_a_model_of_transformers() -> None:
    outputs = pytest.importorskip("transformers.modeling_outputs")
    output = outputs.CausalLMOutput(logits=torch.ones(2, 3, dtype=torch.bfloat16), hidden_states=(torch.ones(99),))
    assert logits_dtype(output) == "torch.bfloat16"
