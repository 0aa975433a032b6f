"""Public calls for operations whose overload has a private name or more results.

Only equivalent forms are used. The script is still run before it counts as a reproduction, and its exact form replaces
it if the readable one behaves differently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

Form = Callable[[Sequence[str], Mapping[str, str]], "str | None"]

ACTIVATIONS = frozenset({"gelu", "silu", "elu", "mish", "softplus", "hardtanh", "leaky_relu"})
"""Overloads that equal the function of ``torch.nn.functional`` of the same name if they get their input only."""

REDUCTIONS = {"0": "none", "1": "mean", "2": "sum"}


def readable_call(operation: str, args: Sequence[str], kwargs: Mapping[str, str], *, results: int) -> str | None:
    """The call as Python; None if there is no plainer form. ``results`` is the number of used results."""
    form = FORMS.get(operation)
    if form is None and results <= 1:
        form = FIRST_RESULT.get(operation)
    if form is not None:
        return form(args, kwargs)
    name = operation.split(".")[1]
    given = [*args, *(f"{key}={value}" for key, value in kwargs.items())]
    if not operation.startswith("aten.") or name.startswith("_"):
        return None
    if name.endswith("_") and hasattr(Tensor, name):
        return f"{args[0]}.{name}({', '.join(given[1:])})"
    plain_loss = name.endswith("_loss") and len(given) == 2
    if (plain_loss or (name in ACTIVATIONS and len(given) == 1)) and hasattr(torch.nn.functional, name):
        return f"torch.nn.functional.{name}({', '.join(given)})"
    return f"torch.{name}({', '.join(given)})" if hasattr(torch, name) else None


def only_first(operation: str, call: str) -> bool:
    """Whether ``call``, a form of ``operation``, returns only the first of its results."""
    return operation in FIRST_RESULT and "torch.nn.functional." in call


def _cast(args: Sequence[str], kwargs: Mapping[str, str]) -> str | None:
    return f"{args[0]}.to({kwargs['dtype']})" if set(kwargs) == {"dtype"} else None


def _softmax(name: str) -> Form:
    def form(args: Sequence[str], kwargs: Mapping[str, str]) -> str | None:
        return f"torch.{name}({args[0]}, {args[1]})" if args[2:] == ["False"] and not kwargs else None

    return form


def _nll_loss(args: Sequence[str], kwargs: Mapping[str, str]) -> str | None:
    if len(args) != 5 or args[3] not in REDUCTIONS or kwargs:
        return None
    weight = [] if args[2] == "None" else [f"weight={args[2]}"]
    given = [*args[:2], *weight, f"ignore_index={args[4]}", f'reduction="{REDUCTIONS[args[3]]}"']
    return f"torch.nn.functional.nll_loss({', '.join(given)})"


def _layer_norm(args: Sequence[str], kwargs: Mapping[str, str]) -> str | None:
    return f"torch.nn.functional.layer_norm({', '.join(args)})" if len(args) == 5 and not kwargs else None


def _group_norm(args: Sequence[str], kwargs: Mapping[str, str]) -> str | None:
    if len(args) != 8 or kwargs:
        return None
    return f"torch.nn.functional.group_norm({args[0]}, {args[6]}, {args[1]}, {args[2]}, {args[7]})"


def _attention(args: Sequence[str], kwargs: Mapping[str, str]) -> str | None:
    if len(args) < 3 or set(kwargs) - {"attn_mask", "scale"}:
        return None
    told = [f"{name}={value}" for name, value in zip(("dropout_p", "is_causal"), args[3:], strict=False)]
    given = [*args[:3], *told, *(f"{key}={value}" for key, value in kwargs.items())]
    return f"torch.nn.functional.scaled_dot_product_attention({', '.join(given)})"


FORMS: Mapping[str, Form] = {
    "aten._to_copy.default": _cast,
    "aten._softmax.default": _softmax("softmax"),
    "aten._log_softmax.default": _softmax("log_softmax"),
}

FIRST_RESULT: Mapping[str, Form] = {
    "aten.nll_loss_forward.default": _nll_loss,
    "aten.native_layer_norm.default": _layer_norm,
    "aten.native_group_norm.default": _group_norm,
    "aten._scaled_dot_product_flash_attention_for_cpu.default": _attention,
}
"""Overloads that return more than their public function."""
