"""Evidence of an index outside its table: which value, in which row, and what was allowed.

An id past the embedding, a label past the classes, an index of ``gather`` or ``one_hot``: the error names a value at
most. The tensors are among the variables of the functions that raised. A GPU reports the error late and elsewhere, and
none of its tensors can be read then: what the loaders gave on the host is compared with the tables of the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from steadytrain.capture.incident.crash.errors import chain, error_facts, live_frames
from steadytrain.core.incident import Samples

ROWS_MAX = 8
VARIABLES_MAX = 256
ELEMENTS_MAX = 1 << 24
IGNORED = -100
"""What torch's losses ignore by default."""

_OF_AN_INDEX = re.compile(
    r"out of (range|bounds)|Class values must be|index_select\(\): |device-side assert|srcIndex < srcSelectDimSize"
)
_ON_DEVICE = re.compile(r"device-side assert|srcIndex < srcSelectDimSize")
_BOUND = re.compile(r"index (-?\d+) is out of bounds for (?:dimension|axis) \d+ with size (\d+)")
_CLASSES = re.compile(r"smaller than num_classes|non-negative")


@dataclass(frozen=True)
class Outside:
    """Indices of ``what`` (``label``, ``token``, ``index``) that are not among ``size`` entries."""

    what: str
    indices: Tensor
    size: int
    ignored: int | None = None

    def places(self) -> list[tuple[int, int]]:
        """Position in the flattened tensor and value, the first ``ROWS_MAX``."""
        flat = self.indices.reshape(-1)
        bad = (flat < 0) | (flat >= self.size)
        if self.ignored is not None:
            bad &= flat != self.ignored
        found: list[int] = torch.nonzero(bad).flatten()[:ROWS_MAX].tolist()
        return [(place, int(flat[place])) for place in found]


@dataclass(frozen=True)
class Tables:
    """The sizes of what a model looks up and of what it decides between; 0 where it has none."""

    rows: int = 0
    classes: int = 0


def tables_of(roots: Iterable[nn.Module]) -> Tables:
    """The largest embedding, and the outputs of the last linear or convolutional layer."""
    rows = classes = 0
    for module in (module for root in roots for module in root.modules()):
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
            rows = max(rows, module.num_embeddings)
        classes = getattr(module, "out_features", None) or getattr(module, "out_channels", None) or classes
    return Tables(rows, classes)


def index_document(
    error: BaseException,
    rows: int | None,
    samples: Sequence[Samples],
    *,
    given: Sequence[Tensor] = (),
    tables: Tables = Tables(),
) -> dict[str, Any] | None:
    """The evidence; None for other errors, and for an ``IndexError`` of a list.

    Args:
        rows: rows of the model's last input, None if it was not called.
        samples: data set samples of that batch, if known.
        given: what the loaders gave in this step.
        tables: those of the script's models.
    """
    first = next((one for one in chain(error) if _says_so(one)), None)
    if first is None:
        return None
    on_device = _ON_DEVICE.search(str(first)) is not None
    outside = _beyond_all_tables(given, tables) if on_device else _outside(first)
    if outside is None and not on_device:
        return None
    return {
        "error": error_facts(first),
        "late": on_device,
        "what": outside.what if outside is not None else "index",
        "allowed": [0, outside.size - 1] if outside is not None else None,
        "ignored": outside.ignored if outside is not None else None,
        "rows": _rows(outside, rows, samples) if outside is not None else [],
    }


def _says_so(error: BaseException) -> bool:
    return isinstance(error, (IndexError, RuntimeError)) and _OF_AN_INDEX.search(str(error)) is not None


def _outside(error: BaseException) -> Outside | None:
    """The tensor that holds the bad index, from the innermost function that has it."""
    frames = live_frames(error)
    for frame in frames:
        for found in _of_a_function(frame):
            if found.places():
                return found
    return _by_message(str(error), frames)


def _beyond_all_tables(given: Sequence[Tensor], tables: Tables) -> Outside | None:
    """The first tensor of integers with a value that no table of the model has."""
    largest = max(tables.rows, tables.classes)
    for tensor in given if largest else ():
        if _readable(tensor):
            is_text = tables.rows > 0 and tensor.dim() > 1
            outside = Outside("token" if is_text else "label", tensor, largest, IGNORED)
            if outside.places():
                return outside
    return None


def _of_a_function(frame: FrameType) -> Iterator[Outside]:
    known, name = frame.f_locals, frame.f_code.co_name
    scores, targets, weight = known.get("input"), known.get("target"), known.get("weight")
    if name in ("cross_entropy", "nll_loss") and isinstance(scores, Tensor) and _readable(targets):
        ignored = known.get("ignore_index", -100)
        yield Outside("label", targets, scores.shape[1 if scores.dim() > 1 else 0], ignored)
    if name in ("embedding", "embedding_bag") and isinstance(weight, Tensor) and _readable(scores):
        yield Outside("token", scores, weight.shape[0])


def _by_message(text: str, frames: Sequence[FrameType]) -> Outside | None:
    """By the value and the size that the message names, else by the classes that the call names."""
    found = _BOUND.search(text)
    for frame in frames:
        tensors = [one for one in list(frame.f_locals.values())[:VARIABLES_MAX] if _readable(one)]
        if found is not None:
            value, size = int(found[1]), int(found[2])
            held = next((one for one in tensors if bool((one == value).any())), None)
            if held is not None:
                return Outside("index", held, size)
        elif _CLASSES.search(text):
            sizes = [one for one in frame.f_locals.values() if isinstance(one, int) and not isinstance(one, bool)]
            for held in tensors:
                fitting = [one for one in sizes if 1 < one <= int(held.max())]
                if fitting:
                    return Outside("label", held, max(fitting))
    return None


def _readable(value: Any) -> TypeGuard[Tensor]:
    """Whether ``value`` is a tensor of integers whose values can be read without the device."""
    plain = isinstance(value, Tensor) and value.device.type == "cpu" and value.layout == torch.strided
    return plain and value.dtype in (torch.int64, torch.int32) and 0 < value.numel() <= ELEMENTS_MAX


def _rows(outside: Outside, rows: int | None, samples: Sequence[Samples]) -> list[dict[str, Any]]:
    """Row, position in it, value and place in the data set. A flattened target is cut into the batch's rows."""
    count, first = outside.indices.numel(), outside.indices.shape[0] if outside.indices.dim() else 1
    known = rows if rows and count % rows == 0 else first
    width = count // max(1, known)
    last = samples[-1] if samples and len(samples[-1].indices) == known else None
    return [
        {
            "row": place // width,
            "position": place % width,
            "value": value,
            "sample": last.named(place // width) if last is not None else None,
        }
        for place, value in outside.places()
    ]
