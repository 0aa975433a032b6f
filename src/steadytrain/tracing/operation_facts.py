"""Facts about an operation before it runs: its argument names, what it writes, and how it treats infinities.

Names and writes come from the operator's schema. The name sets below hold what no schema says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from steadytrain.core.torch_private import SCHEMA
from steadytrain.tracing.tensor_summary import Kinds, kinds_of_number


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


FILLS = _names(
    """
    full full_like new_full fill fill_ zeros zeros_like new_zeros zero_ ones ones_like new_ones empty empty_like
    new_empty empty_strided new_empty_strided empty_permuted resize resize_ arange linspace eye scalar_tensor
    lift lift_fresh lift_fresh_copy
    """
)
"""They fill a tensor with a constant (or, ``empty``, with old memory). A non-finite constant is intended, no fault."""

OVERWRITES = FILLS | _names("copy_ normal_ uniform_ random_ exponential_ bernoulli_ log_normal_ set_")
"""In-place operations that do not read what they overwrite."""

ABSORBS_NEGATIVE_INF = _names(
    """
    _softmax _log_softmax _safe_softmax _masked_softmax softmax log_softmax logsumexp logcumsumexp
    _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu
    _scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention
    _scaled_dot_product_attention_math _scaled_dot_product_fused_attention_overrideable
    """
)
"""For these, -Inf means "masked". A NaN that they make (from a fully masked row) is their own fault, not the mask's."""

CONTRACTIONS = _names(
    """
    mm addmm bmm baddbmm addbmm mv addmv dot vdot linear matmul convolution _convolution mkldnn_convolution
    convolution_overrideable cudnn_convolution _scaled_mm mkldnn_linear addmm_ baddbmm_
    """
)
"""Sums of products. Their -Inf is an overflow, never a mask."""

KEEPS_INFINITIES = _names(
    """
    neg neg_ mul mul_ div div_ sub sub_ rsub negative multiply divide subtract true_divide
    """
)
"""They turn an Inf into the Inf of the other sign. That makes no new value, so they are not to blame for it."""

RUNNING_STATISTICS = frozenset({"running_mean", "running_var"})
"""Batch norm in training writes these arguments without using them for its result. Most schemas do not declare it."""


C10D = "c10d."
COLLECTIVES = (C10D, "_c10d_functional.", "_c10d_functional_autograd.")
"""The namespaces of operations that several ranks make together."""

RECEIVED = _names("tensors output_tensors output_tensors_list output_tensor output")
"""The arguments that a c10d collective writes. Its schema does not declare them."""


@dataclass(frozen=True)
class Operation:
    name: str
    arguments: tuple[str, ...]
    written: frozenset[str]
    overwrites: bool
    only_a_view: bool
    fills: bool
    absorbs_negative_inf: bool
    keeps_infinities: bool
    contracts: bool
    selects: bool
    pairs_lists: bool


@dataclass(frozen=True)
class Operand:
    """One argument of a call. A list argument becomes one operand an element, with its ``position`` in the list."""

    name: str
    value: Any
    argument: str
    position: int | None


@lru_cache(maxsize=4096)  # about twice the number of ATen overloads
def operation_of(function: Any) -> Operation:
    """The facts about ``function``, an ``OpOverload`` or a higher-order operator (which has no schema)."""
    schema = SCHEMA.on(function)
    arguments = schema.arguments if schema is not None else []
    returns = schema.returns if schema is not None else []
    short = str(schema.name).partition("::")[2] if schema is not None else str(function)
    writes = [argument for argument in arguments if argument.alias_info is not None and argument.alias_info.is_write]
    aliases = [value.alias_info for value in returns if value.alias_info is not None]
    fills = short in FILLS
    names = frozenset(argument.name for argument in writes)
    if str(function).startswith(C10D) and short.endswith("_"):
        names |= RECEIVED & {argument.name for argument in arguments}
    return Operation(
        name=str(function),
        arguments=tuple(argument.name for argument in arguments),
        written=names,
        overwrites=short in OVERWRITES or any(argument.is_out for argument in writes),
        only_a_view=bool(aliases) and not any(alias.is_write for alias in aliases) and not fills,
        fills=fills,
        absorbs_negative_inf=short in ABSORBS_NEGATIVE_INF,
        keeps_infinities=short in KEEPS_INFINITIES,
        contracts=short in CONTRACTIONS,
        selects=short in {"where", "masked_fill", "masked_fill_"},
        pairs_lists=short.startswith(("_foreach_", "_amp_foreach_", "_fused_")),
    )


def operands_of(operation: Operation, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Operand]:
    """The arguments of a call by name, with lists flattened and None left out."""
    named = [
        (operation.arguments[place] if place < len(operation.arguments) else f"argument {place}", value)
        for place, value in enumerate(args)
    ]
    return [operand for name, value in [*named, *kwargs.items()] for operand in _take_apart(name, value)]


def written_by(operation: Operation, operands: Sequence[Operand]) -> frozenset[str]:
    """The names of the arguments that this call writes."""
    if _updates_running_statistics(operation, operands):
        return operation.written | RUNNING_STATISTICS
    return operation.written


def unread_by(operation: Operation, operands: Sequence[Operand]) -> frozenset[str]:
    """The arguments whose values do not enter the result: overwritten, or read only for their shape."""
    if operation.fills:
        return frozenset(operation.arguments) - {"value"}
    unread = operation.written if operation.overwrites else frozenset[str]()
    return unread | (RUNNING_STATISTICS if _updates_running_statistics(operation, operands) else frozenset[str]())


def kinds_in_numbers(operands: Sequence[Operand]) -> Kinds:
    """The non-finite kinds among the plain numbers of a call, such as the value of ``masked_fill``."""
    kinds = Kinds.NONE
    for operand in operands:
        kinds |= kinds_of_number(operand.value)
    return kinds


def selected_part(operation: Operation, operand: Operand, operands: Sequence[Operand]) -> torch.Tensor:
    """The part of ``operand`` that a ``where`` or ``masked_fill`` passes on; all of it for other operations.

    Without this, a NaN that ``where`` discards would be taken for the origin of one that passes.
    """
    value: torch.Tensor = operand.value
    if not operation.selects:
        return value
    by_name = {other.name: other.value for other in operands}
    if operand.name == "self" and "condition" in by_name:
        return torch.where(by_name["condition"], value, 0)
    if operand.name == "other" and "condition" in by_name:
        return torch.where(by_name["condition"], 0, value)
    if operand.name == "self" and "mask" in by_name:
        return value.masked_fill(by_name["mask"], 0)
    return value


def _updates_running_statistics(operation: Operation, operands: Sequence[Operand]) -> bool:
    if "running_mean" not in operation.arguments:
        return False
    return any(operand.name in {"training", "train"} and operand.value is True for operand in operands)


def _take_apart(name: str, value: Any) -> Iterator[Operand]:
    if value is None:
        return
    if isinstance(value, (list, tuple)) and any(isinstance(element, torch.Tensor) for element in value):
        for position, element in enumerate(value):
            if element is not None:
                yield Operand(f"{name}[{position}]", element, name, position)
        return
    yield Operand(name, value, name, None)
