"""Extracts the non-finite rows of a recorded batch. No operation is to blame then, so there is no script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from steadytrain.core.incident import Samples
from steadytrain.replay.bundle_state import read_batches
from steadytrain.repro.script_making import ROWS, ROWS_TEXT
from steadytrain.storage.bundle import Bundle
from steadytrain.storage.documents import write_text
from steadytrain.tracing.tensor_summary import summarize

ROWS_KEPT_MAX = 64
ROWS_BYTES_MAX = 64_000
PLACES_TOLD_MAX = 16


@dataclass(frozen=True)
class BadRows:
    """Rows of one tensor of a batch. ``places`` are the indices of the first non-finite values."""

    name: str
    rows: tuple[int, ...]
    places: tuple[tuple[int, ...], ...]
    values: Tensor
    summary: str


def bad_rows(bundle: Bundle) -> list[BadRows]:
    """The non-finite rows in the recorded batches of the failing step."""
    calls, fetched = read_batches(bundle.path, bundle.incident.step, torch.device("cpu"))
    named: list[tuple[str, Any]] = []
    for number, call in enumerate(calls):
        lead = f"micro-batch {number}, " if len(calls) > 1 else ""
        named += [(f"{lead}args[{at}]", value) for at, value in enumerate(call["args"])]
        named += [(f"{lead}{name}", value) for name, value in call["kwargs"].items()]
    named += [(f"batch of data loader {dataset}", batch) for dataset, batch in fetched]
    found = (_bad_rows(name, tensor) for lead, value in named for name, tensor in _tensors(lead, value))
    return [rows for rows in found if rows is not None]


UNTRACED = "What made the values is not known: what the script does before it calls the model was not traced."
WRITTEN = "The script writes the values into the batch itself, at {place}."
FROM_DATA = "No operation is to blame: the values were there before the first one ran."


def write_rows(found: list[BadRows], folder: Path, samples: Sequence[Samples], *, said: str = FROM_DATA) -> None:
    """Writes the rows as tensors and as text, with their place in the data set if known.

    ``said``: the sentence on where the values come from.
    """
    kept = {one.name: {"rows": torch.tensor(one.rows), "values": one.values} for one in found}
    torch.save(kept, folder / ROWS)
    lines = ["# The batch holds values that are not finite", ""]
    lines.append(said)
    lines += ["", "| tensor | rows | first places | tensor in all |", "|---|---|---|---|"]
    for one in found:
        rows = ", ".join(map(str, one.rows[:PLACES_TOLD_MAX]))
        places = ", ".join(str(list(place)) for place in one.places)
        lines.append(f"| `{one.name}` | {rows} | {places} | {one.summary} |")
    named = [f"- row {row} is `{one.named(row)}`" for one in samples for row in one.nonfinite_rows[:PLACES_TOLD_MAX]]
    lines += ["", *named] if named else []
    lines += ["", f"`{ROWS}` holds these rows: `torch.load({ROWS!r}, weights_only=True)`.", ""]
    write_text(folder / ROWS_TEXT, "\n".join(lines))


def _bad_rows(name: str, tensor: Tensor) -> BadRows | None:
    if not tensor.is_floating_point() or not tensor.numel():
        return None
    bad = ~torch.isfinite(tensor)
    if not bool(bad.any()):
        return None
    summary = summarize(name, tensor).summary()
    places = tuple(tuple(place) for place in bad.nonzero()[:PLACES_TOLD_MAX].tolist())
    if tensor.dim() == 0:
        return BadRows(name, (0,), places, tensor.clone(), summary)
    rows = bad.flatten(1).any(1).nonzero().flatten() if tensor.dim() > 1 else bad.nonzero().flatten()
    fits = max(1, min(ROWS_KEPT_MAX, ROWS_BYTES_MAX // max(1, tensor[0].nbytes)))
    rows = rows[:fits]
    return BadRows(name, tuple(rows.tolist()), places, tensor[rows].clone(), summary)


def _tensors(lead: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield lead, value
    elif isinstance(value, (list, tuple)):
        for at, entry in enumerate(value):
            yield from _tensors(f"{lead}[{at}]", entry)
    elif isinstance(value, Mapping):
        for name, entry in value.items():
            yield from _tensors(f"{lead}[{name!r}]", entry)
