"""Changes made in place on a copy that nobody reads afterwards, and that is then gone.

``reshape`` and ``flatten`` copy what is not contiguous, ``to`` copies what has another type, and an index tensor or a
mask whatever it takes. A line that changes such a copy in place, and throws it away, leaves the tensor that it means as
it was. A copy counts as read when any function gets it, and as kept while a tensor of the script refers to it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from steadytrain.survey.script_lines import calling_frame, line_of, script_frame

COPIES = frozenset(
    {"reshape", "flatten", "ravel", "contiguous", "to", "float", "double", "half", "bfloat16", "type", "type_as"}
    | {"__getitem__", "index_select", "masked_select"}
)
"""They copy in some cases only, or look as if they did not."""

VIEWS = frozenset(
    {"view", "view_as", "reshape", "flatten", "ravel", "squeeze", "unsqueeze", "transpose", "permute", "t", "expand"}
    | {"__getitem__", "narrow", "select", "detach", "data", "chunk", "split", "unbind", "diagonal", "unflatten"}
    | {"swapaxes", "movedim", "contiguous", "to", "float", "cpu", "requires_grad_", "T", "mT", "real", "imag"}
)
"""If what they return is part of what they were given, nothing was read."""

KEEP_VALUES = frozenset(
    {"requires_grad_", "detach_", "squeeze_", "unsqueeze_", "t_", "transpose_", "swapaxes_", "swapdims_", "resize_"}
    | {"set_", "share_memory_", "as_strided_", "rename_", "retain_grad", "register_hook", "names_"}
)
READS_NOTHING = frozenset(
    {"size", "dim", "ndim", "shape", "dtype", "device", "numel", "stride", "is_contiguous", "requires_grad", "grad_fn"}
    | {"storage_offset", "element_size", "layout", "is_leaf", "__len__", "ndimension", "is_sparse", "names"}
    | {"is_floating_point", "nelement", "is_cuda", "__hash__"}
)
WRITTEN_BY = frozenset(
    {"__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ifloordiv__", "__imod__", "__ipow__"}
    | {"__iand__", "__ior__", "__ixor__"}
)
HELD_MAX, FOUND_MAX = 256, 4


@dataclass
class _Copy:
    """A copy that the call ``name`` made at ``line``: tensors that lie in its memory, and where it was last changed."""

    name: str
    line: str
    refs: list[weakref.ref[Tensor]] = field(default_factory=list)
    written: str = ""
    by: str = ""
    step: int = 0

    @property
    def is_gone(self) -> bool:
        return all(ref() is None for ref in self.refs)


class DiscardedWrites:
    """Follows the copies that the script's own lines make."""

    def __init__(self) -> None:
        self._copies: dict[int, _Copy] = {}
        self._found: dict[str, dict[str, Any]] = {}
        self._kept: set[str] = set()

    def given(self, name: str, args: Sequence[Any], given: Mapping[str, Any], step: int) -> None:
        """Reports a call that is about to be made."""
        if not self._copies or name in READS_NOTHING:
            return
        first = args[0] if args and isinstance(args[0], Tensor) else None
        writes = first is not None and _writes(name)
        for one in _tensors([*args, *given.values()]):
            place = place_of(one)
            copy = self._copies.get(place)
            if copy is None:
                continue
            if copy.is_gone:  # its memory belongs to another tensor now
                self._ended(place)
            elif one is first and writes:
                frame = script_frame()
                if all(ref() is not one for ref in copy.refs[-2:]):
                    copy.refs.append(weakref.ref(one))
                copy.written, copy.by, copy.step = (line_of(frame) if frame is not None else ""), name, step
            elif name not in VIEWS and name not in KEEP_VALUES:
                self._read(copy)

    def made(self, name: str, args: Sequence[Any], result: Any) -> None:
        """Reports what a call returned."""
        first = args[0] if args and isinstance(args[0], Tensor) else None
        if first is None:
            return
        results = [one for one in _tensors([result]) if one is not first]
        from_copy = self._copies.get(place_of(first))
        if name in VIEWS and from_copy is not None and any(place_of(one) != place_of(first) for one in results):
            self._read(from_copy)  # a copy of the copy
        for one in results if self._copies or name in COPIES else ():
            place = place_of(one)
            if place == place_of(first):
                if place in self._copies:
                    self._copies[place].refs.append(weakref.ref(one))
                continue
            if place in self._copies:
                self._ended(place)
            if name in COPIES and place and len(self._copies) < HELD_MAX:
                self._begin(name, one, place)

    def step_begins(self) -> None:
        """Decides about the copies of the previous step that are gone."""
        for place in [place for place, copy in self._copies.items() if copy.is_gone or not copy.written]:
            self._ended(place)

    def found(self) -> list[dict[str, Any]] | None:
        """``{line, by, copied, copy_line, times, step}`` of the lines whose changes were discarded each time."""
        self.step_begins()
        listed = [one for line, one in self._found.items() if line not in self._kept]
        return listed[:FOUND_MAX] or None

    def _read(self, copy: _Copy) -> None:
        self._kept.add(copy.written)
        copy.written = ""

    def _begin(self, name: str, result: Tensor, place: int) -> None:
        frame = calling_frame()
        if frame is not None:
            self._copies[place] = _Copy(name, line_of(frame), [weakref.ref(result)])

    def _ended(self, place: int) -> None:
        copy = self._copies.pop(place)
        if not copy.written:
            return
        if not copy.is_gone:
            self._kept.add(copy.written)
            return
        known = self._found.setdefault(
            copy.written,
            {
                "line": copy.written,
                "by": copy.by,
                "copied": copy.name,
                "copy_line": copy.line,
                "times": 0,
                "step": copy.step,
            },
        )
        known["times"] += 1


def _writes(name: str) -> bool:
    """Whether a function of this name changes its first argument."""
    if name.startswith("__"):
        return name in WRITTEN_BY
    return name.endswith("_") and name not in KEEP_VALUES


def _tensors(values: Sequence[Any]) -> Iterator[Tensor]:
    for one in values:
        if isinstance(one, Tensor):
            yield one
        elif isinstance(one, (list, tuple)):
            yield from (each for each in one if isinstance(each, Tensor))
        elif isinstance(one, dict):
            yield from (each for each in one.values() if isinstance(each, Tensor))


def place_of(one: Tensor) -> int:
    """Where the memory of a tensor begins, 0 if it has none."""
    if one.layout is not torch.strided or one.is_meta:
        return 0
    try:
        return int(one.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):
        return 0
