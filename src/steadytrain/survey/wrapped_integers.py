"""Operations of the script on integers whose result does not fit its type, so that it wraps around.

Each result in a type of up to 32 bits is compared with the same operation in 64 bits, and each number that becomes such
an integer with what became of it. Hashes, checksums and generators of random numbers wrap on purpose: lines that also
shift or mask bits, and functions with such a name, are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from steadytrain.survey.script_lines import script_frame

SMALL = frozenset({torch.int8, torch.uint8, torch.int16, torch.int32})
"""Types of 64 bits are left out: nothing wider is there to compare with."""

PLAIN = frozenset(
    {"add", "__add__", "__radd__", "sub", "__sub__", "__rsub__", "rsub", "mul", "__mul__", "__rmul__", "neg", "__neg__"}
)
WRITES = frozenset({"add_", "sub_", "mul_", "neg_", "__iadd__", "__isub__", "__imul__"})
CASTS = frozenset({"to", "type", "type_as", "int", "short", "char", "byte"})
SUMS = frozenset({"sum", "cumsum", "prod", "cumprod"})
"""They add in 64 bits unless they are given a type."""

NAMES = PLAIN | WRITES | CASTS | SUMS

ON_PURPOSE = re.compile(
    r"(?i)(?<![a-z])(hash(ed|es|ing)?|crc\d*|check_?sums?|digest|finger_?print|rand(om|int|s)?|p?rng|lcg|xorshift|seeds?"
    r"|scramble|mix(er)?|murmur\d?|fnv\w*|wrap(s|ped|around)?|ring_?(buffer|pos|index)|head|tail|cursor|slots?|ptr)(?![a-z(])"
)
"""Words in the line or in the name of its function."""

SPREADS = re.compile(r"\*\s*(31|33|37|131|\d{5,})\b|\b\d{5,}\s*\*")
"""Factors of hashes and of generators of random numbers."""

BITS = re.compile(r">>|<<|\^|(?<!&)&(?!&)|bitwise_|0x[0-9a-fA-F]{2,}")
FOUND_MAX, LINES_MAX = 4, 256
"""Lines that are kept, and those whose elements are counted."""


class WrappedIntegers:
    """Reads the operations named in ``NAMES``."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, Any]] = {}
        self._elements: dict[str, int] = {}
        self._wide: Tensor | None = None

    def before(self, name: str, args: Sequence[Any], given: Mapping[str, Any]) -> None:
        """Computes in 64 bits what is about to be computed, which may be in place."""
        self._wide = exact(name, args, given)

    def saw(self, name: str, result: Any, line: str, step: int, *, before_model: bool) -> None:
        """Compares it with what the operation made."""
        wide, self._wide = self._wide, None
        if wide is None:
            return
        key = f"{name.strip('_')} {line}"
        if key in self._elements or len(self._elements) < LINES_MAX:
            self._elements[key] = self._elements.get(key, 0) + wide.numel()
        wrong = wrapped(wide, result)
        if wrong is None or on_purpose(line) or (key not in self._found and len(self._found) >= FOUND_MAX):
            return
        now = self._found.setdefault(
            key,
            {
                "operation": name.strip("_"),
                "line": line,
                "dtype": str(result.dtype).removeprefix("torch."),
                "step": step,
                "wrapped": 0,
                "before_model": before_model,
            },
        )
        first = torch.nonzero(wrong.reshape(-1))[0, 0]
        now.setdefault("example", [int(wide.reshape(-1)[first]), int(result.reshape(-1)[first])])
        now["wrapped"] += int(wrong.sum())

    def found(self) -> list[dict[str, Any]] | None:
        """The lines whose results wrapped, in the order in which they were met; None if none did."""
        return [
            {**one, "elements": self._elements.get(key, one["wrapped"])} for key, one in self._found.items()
        ] or None


def exact(name: str, args: Sequence[Any], given: Mapping[str, Any]) -> Tensor | None:
    """What an operation of ``NAMES`` makes in 64 bits, with the shape that broadcasting gives; None where the operands
    leave nothing to wrap."""
    value = args[0] if args else None
    if not isinstance(value, Tensor) or value.numel() == 0 or value.is_complex() or value.is_sparse:
        return None
    if name in CASTS:
        target = _target(name, args, given)
        if target not in SMALL or value.dtype in (target, torch.bool):
            return None
        return value.detach() if value.is_floating_point() else value.long()
    if name in SUMS:
        if given.get("dtype") not in SMALL:
            return None
        made = getattr(value.detach(), name)(*args[1:], **{**given, "dtype": torch.int64})
        return made if isinstance(made, Tensor) else None
    other = args[1] if len(args) > 1 else given.get("other")
    if value.dtype not in SMALL or not _small(other):
        return None
    one, two = value.long(), other.long() if isinstance(other, Tensor) else other
    if name.strip("_") == "neg":
        return -one
    if two is None:
        return None
    if "alpha" in given:
        two = two * given["alpha"]
    kind = name.strip("_").lstrip("ir") if name.startswith("__") else name.strip("_").removeprefix("r")
    made = one + two if kind == "add" else one * two if kind == "mul" else one - two
    return -made if name in ("__rsub__", "rsub") else made


def wrapped(wide: Tensor, result: Any) -> Tensor | None:
    """Which elements of ``result`` are not those of ``wide`` [as result], None if there are none."""
    if not isinstance(result, Tensor) or result.dtype not in SMALL or result.shape != wide.shape:
        return None
    limits = torch.iinfo(result.dtype)
    outside = (wide < limits.min) | (wide >= limits.max + 1)  # a float is cut off, not rounded
    return outside if bool(outside.any()) else None


def on_purpose(line: str) -> bool:
    """Whether a line, or the function that it stands in, is one that wraps integers by design."""
    frame = script_frame()
    name = frame.f_code.co_name if frame is not None else ""
    code = line.partition(": ")[2]
    return any(one.search(code) for one in (ON_PURPOSE, SPREADS, BITS)) or ON_PURPOSE.search(name) is not None


def _target(name: str, args: Sequence[Any], given: Mapping[str, Any]) -> torch.dtype | None:
    """The type that a cast asks for; None where it asks for none."""
    if name in _CAST_TYPES:
        return _CAST_TYPES[name]
    for one in (*args[1:], *given.values()):
        if isinstance(one, (torch.dtype, Tensor)):
            return one if isinstance(one, torch.dtype) else one.dtype
        if isinstance(one, str) and one in _TENSOR_TYPES:
            return _TENSOR_TYPES[one]
    return None


_CAST_TYPES = {"int": torch.int32, "short": torch.int16, "char": torch.int8, "byte": torch.uint8}
_TENSOR_TYPES = {
    "torch.IntTensor": torch.int32,
    "torch.ShortTensor": torch.int16,
    "torch.CharTensor": torch.int8,
    "torch.ByteTensor": torch.uint8,
}


def _small(other: Any) -> bool:
    if isinstance(other, Tensor):
        return other.dtype in SMALL
    return other is None or (isinstance(other, int) and not isinstance(other, bool))
