"""Collects evidence when the script itself fails: which tensors held the memory, which index was outside its table,
which batch held NaN or Inf, which norm got one value a channel, which matrix was singular, which graph was used
twice, and which ranks lost contact.

Nothing is pickled, and no pickle is opened or copied.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from steadytrain.capture.incident.crash.communication import communication_document
from steadytrain.capture.incident.crash.few_values import few_values_document
from steadytrain.capture.incident.crash.index_range import Tables, index_document
from steadytrain.capture.incident.crash.memory import is_out_of_memory, out_of_memory_document
from steadytrain.capture.incident.crash.nonfinite_batch import nonfinite_batch_document
from steadytrain.capture.incident.crash.reused_graph import Backward, reused_graph_document
from steadytrain.capture.incident.crash.singular_matrix import singular_matrix_document
from steadytrain.capture.machine import Sample
from steadytrain.core.incident import Samples
from steadytrain.storage.bundle import write_json

EVIDENCE_FOLDER = "evidence"
COMMUNICATION = "communication"


@dataclass(frozen=True)
class Moment:
    """The state of the run at the failure.

    Args:
        created: current time in the format of all documents.
        since: when the run began, in seconds since the epoch; older dump files belong to other runs.
        rank: rank of this process.
        step: the last complete step, None before the first.
        names: names of parameters by ``id``.
        own: tensors that steadytrain keeps.
        samples: the last readings of the machine.
        rows: rows of the model's last input, None if it was not called in this step.
        drawn: the data set samples of that batch, if known.
        backwards: the last backwards of the script, oldest first.
        given: what the loaders gave in this step.
        tables: the sizes of the tables of the script's models.
        fields: what the loaders gave, with its place in the batch.
        inputs: what the model was called with in this step.
    """

    created: str
    since: float
    rank: int = 0
    step: int | None = None
    names: Mapping[int, str] = field(default_factory=dict)
    own: Collection[Tensor] = ()
    samples: Sequence[Sample] = ()
    rows: int | None = None
    drawn: Sequence[Samples] = ()
    backwards: Sequence[Backward] = ()
    given: Sequence[Tensor] = ()
    tables: Tables = field(default_factory=Tables)
    fields: Sequence[tuple[str, Tensor]] = ()
    inputs: Sequence[tuple[str, Tensor]] = ()


def evidence_of(error: BaseException, moment: Moment, *, disk: Path) -> dict[str, dict[str, Any]]:
    """The documents of evidence for an error that ended the script, by name; none for most errors.

    Args:
        disk: the run folder, or its future path.
    """
    found: dict[str, dict[str, Any]] = {}
    if is_out_of_memory(error):
        found["out-of-memory"] = out_of_memory_document(error, disk, moment.names, moment.own, moment.samples)
    index = index_document(error, moment.rows, moment.drawn, given=moment.given, tables=moment.tables)
    if index is not None:
        found["index-out-of-range"] = index
    bad = nonfinite_batch_document(error, moment.fields, moment.inputs, moment.drawn)
    if bad is not None:
        found["nonfinite-batch"] = bad
    few = few_values_document(error, moment.rows)
    if few is not None:
        found["too-few-values"] = few
    singular = singular_matrix_document(error) if bad is None else None
    if singular is not None:
        found["singular-matrix"] = singular
    graph = reused_graph_document(error, moment.backwards, moment.names)
    if graph is not None:
        found["reused-graph"] = graph
    communication = communication_document(error, since=moment.since)
    if communication is not None:
        found[COMMUNICATION] = communication
    head = {"created": moment.created, "rank": moment.rank, "step": moment.step}
    return {name: {"schema": f"steadytrain.{name}/1", **head, **document} for name, document in found.items()}


def write_evidence(folder: Path, documents: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Write the documents into the run folder; returns one line of text for each. Raises ``OSError``."""
    told = []
    (folder / EVIDENCE_FOLDER).mkdir(parents=True, exist_ok=True)
    for name, document in documents.items():
        path = folder / EVIDENCE_FOLDER / f"{name}.json"
        write_json(path, document)
        what = {
            "out-of-memory": f"out of memory on {document.get('device')}",
            "index-out-of-range": f"an index is outside its table{_of_an_index(document)}",
            "nonfinite-batch": _of_a_batch(document),
            "too-few-values": "a norm in training mode got one value a channel",
            "singular-matrix": "a matrix could not be decomposed or inverted",
            "reused-graph": _of_a_graph(document),
        }.get(name, "communication between ranks failed")
        told.append(f"{what}: the evidence is in {path}")
    return told


def _of_an_index(document: Mapping[str, Any]) -> str:
    """The first bad value; where a GPU reported it, how its line is found."""
    late = "a GPU reports this late: CUDA_LAUNCH_BLOCKING=1 shows the line" if document.get("late") else ""
    rows, allowed = document.get("rows") or (), document.get("allowed")
    first = ""
    if rows and allowed:
        one, (least, most) = rows[0], allowed
        first = f"{document.get('what')} {one['value']} in row {one['row']} is not within {least} to {most}"
    told = "; ".join(filter(None, [first, late]))
    return f" ({told})" if told else ""


def _of_a_batch(document: Mapping[str, Any]) -> str:
    """What the batch held, and the first row of it."""
    word = "NaN" if document.get("nan") else "Inf"
    rows = document.get("rows")
    if not isinstance(rows, list) or not rows:
        return f"the batch held {word}"
    sample = rows[0].get("sample")
    return f"the batch held {word} in row {rows[0]['row']}{f', {sample}' if sample else ''}"


def _of_a_graph(document: Mapping[str, Any]) -> str:
    """What the backward ran into, for the run's last lines."""
    carried, held = ", ".join(document.get("carried") or ()), ", ".join(document.get("held") or ())
    if carried:
        return f"the backward ran into the graph of an earlier step, which {carried} carries"
    if document.get("kind") == "updated":
        updated = ", ".join(document.get("parameters") or ())
        return f"{updated} changed between the forward and its backward"
    return "the backward ran into a graph that another backward has used" + (f", through {held}" if held else "")
