"""Sample objects for the feature tests of `torch_private`. Making one imports torch."""

from __future__ import annotations

import importlib
import warnings
from typing import Any


def torch() -> Any:
    return importlib.import_module("torch")


def module() -> Any:
    return torch().nn.Module()


def sparse() -> Any:
    return torch().eye(1).to_sparse()


def node(operation: str) -> Any:
    one = torch().ones((), requires_grad=True)
    return getattr(one, operation)(torch().ones(())).grad_fn


def softmax() -> Any:
    return torch().ones(2, requires_grad=True).softmax(0).grad_fn


def transpose() -> Any:
    return torch().ones(1, 1, requires_grad=True).transpose(0, 1).grad_fn


def sliced() -> Any:
    return torch().ones(1, 2, requires_grad=True)[:, 1:].grad_fn


def select() -> Any:
    return torch().ones(1, 1, requires_grad=True).select(0, 0).grad_fn


def permute() -> Any:
    return torch().ones(1, 1, requires_grad=True).permute(1, 0).grad_fn


def attention() -> Any:
    one = torch().ones(1, 1, 2, 8, requires_grad=True)
    return torch().nn.functional.scaled_dot_product_attention(one, one, one).grad_fn


def likelihood() -> Any:
    inputs, labels = torch().ones(1, 2, requires_grad=True), torch().zeros(1).long()
    return torch().nn.functional.nll_loss(inputs, labels).grad_fn


def loss(kind: str) -> Any:
    inputs = torch().ones(1, 2, requires_grad=True)
    target = torch().zeros(1).long() if kind == "nll_loss" else torch().zeros(1, 2)
    return getattr(torch().nn.functional, kind)(inputs, target).grad_fn


def saved_tensor() -> Any:
    return getattr(likelihood(), "_raw_saved_target")  # noqa: B009 (a private name, which is tested here)


def sum_node() -> Any:
    return torch().ones(1, requires_grad=True).sum().grad_fn


def scaler() -> Any:
    return torch().amp.GradScaler("cpu")


def loader_iterator() -> Any:
    return iter(torch().utils.data.DataLoader([0]))


def optimizer() -> Any:
    return torch().optim.SGD([torch().zeros(1)], lr=0.1)


def schedule() -> Any:
    scheduling = importlib.import_module("torch.optim.lr_scheduler")
    stepping = optimizer()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return scheduling.SequentialLR(stepping, [scheduling.ConstantLR(stepping)] * 2, milestones=[1])
