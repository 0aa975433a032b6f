"""Looks at models that are called inside ``vmap`` and ``grad``: such inputs have no values of their own."""

from __future__ import annotations

from pathlib import Path

import torch
from looked_loops import Step, adam, batch, found, small
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap

from steadytrain.capture.looks.repeated_inputs import digest_of, inputs_of
from steadytrain.capture.looks.row_keys import row_keys


def per_sample_gradients() -> Step:
    model = small().eval()
    optimizer = adam(model)

    def loss_of(parameters: dict[str, Tensor], row: Tensor, label: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(model, parameters, (row[None],)), label[None])

    def step(_: int) -> None:
        held = {name: one.detach() for name, one in model.named_parameters()}
        each = vmap(grad(loss_of), in_dims=(None, 0, 0))(held, *batch())
        with torch.no_grad():
            vmap(lambda row: model(row[None]))(batch()[0])
        for name, one in model.named_parameters():
            one.grad = each[name].mean(0)
        optimizer.step()

    return step


def test_per_sample_gradients_end_no_look(tmp_path: Path) -> None:
    assert found(tmp_path, per_sample_gradients) == {}  # a failure of ours would be raised


def several_models_in_one_call() -> Step:
    models = [small() for _ in range(3)]
    whole, optimizer = models[0], adam(*models)

    def step(_: int) -> None:
        held, kept = stack_module_state(models)
        rows, _labels = batch()
        vmap(lambda own, statistics: functional_call(whole, (own, statistics), (rows,)), randomness="different")(
            held, kept
        )
        optimizer.step()

    return step


def test_statistics_of_several_models_end_no_look(tmp_path: Path) -> None:
    found(tmp_path, several_models_in_one_call)  # a failure of ours would be raised


def test_a_transforms_tensors_have_no_digest_and_no_keys() -> None:
    kept: list[Tensor] = []

    def one(row: Tensor) -> Tensor:
        kept.append(row)
        assert row_keys((row[None],), {}) is None
        return row.sum()

    vmap(one)(torch.ones(3, 4))
    assert digest_of(kept) == b""
    assert inputs_of(tuple(kept), {}) == []
