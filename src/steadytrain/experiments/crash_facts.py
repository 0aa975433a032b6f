"""Facts of a run from its folder: the error that ended it, and whether it was seeded. This launches no script."""

from __future__ import annotations

from typing import Any

from steadytrain.core.bounded_files import read_json
from steadytrain.storage.run_folder import Run

INDEX_FILE, INDEX_SCHEMA = "evidence/index-out-of-range.json", "steadytrain.index-out-of-range/1"
FEW_FILE, FEW_SCHEMA = "evidence/too-few-values.json", "steadytrain.too-few-values/1"
MATRIX_FILE, MATRIX_SCHEMA = "evidence/singular-matrix.json", "steadytrain.singular-matrix/1"
GRAPH_FILE, GRAPH_SCHEMA = "evidence/reused-graph.json", "steadytrain.reused-graph/1"
BATCH_FILE, BATCH_SCHEMA = "evidence/nonfinite-batch.json", "steadytrain.nonfinite-batch/1"
BYTES_MAX = 1 << 20
ROWS_MAX = 8
NAME_CHARACTERS_MAX = 200


def facts_of_crash(run: Run | None) -> dict[str, Any]:
    """``index_outside``, ``nonfinite_refused``, ``too_few_values``, ``singular_matrix`` or ``reused_graph``, where
    such an error ended the run, and ``torch_seeded``, where that is recorded. A damaged file is no evidence."""
    if run is None:
        return {}
    randomness = run.facts.get("randomness")
    seeded = randomness.get("seeded") if isinstance(randomness, dict) else None
    found: dict[str, Any] = {"torch_seeded": seeded} if isinstance(seeded, bool) else {}
    for name, file, schema, read in (
        ("index_outside", INDEX_FILE, INDEX_SCHEMA, _index),
        ("too_few_values", FEW_FILE, FEW_SCHEMA, _few),
        ("nonfinite_refused", BATCH_FILE, BATCH_SCHEMA, _batch),
        ("singular_matrix", MATRIX_FILE, MATRIX_SCHEMA, _matrix),
        ("reused_graph", GRAPH_FILE, GRAPH_SCHEMA, _graph),
    ):
        path = run.path / file
        try:
            document = read_json(path, bytes_max=BYTES_MAX)
            if document["schema"] == schema:
                found[name] = read(document)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
            continue
    return found


def crash_note(run: Run | None) -> tuple[str, ...]:
    """A sentence on the error that ended the run; empty if none did."""
    failure = failure_of(run) if run is not None and run.ended == "failed" else ""
    return (f"The script was {failure}.",) if failure else ()


def failure_of(run: Run) -> str:
    """How an error ended the run, such as "ended by ValueError after step 41 at train.py:10: ..."; "" if unknown."""
    failure = run.facts.get("failure")
    return failure if isinstance(failure, str) else ""


def _line(document: dict[str, Any]) -> str | None:
    frames = [frame for frame in document["error"]["frames"] if "site-packages" not in str(frame["file"])]
    return f"{str(frames[-1]['file']).rsplit('/', 1)[-1]}:{int(frames[-1]['line'])}" if frames else None


def _few(document: dict[str, Any]) -> dict[str, Any]:
    rows = document["rows"]
    return {
        "shape": [int(size) for size in document["shape"]],
        "rows": int(rows) if rows is not None else None,
        "line": _line(document),
        "message": str(document["error"]["message"])[:200],
    }


def _matrix(document: dict[str, Any]) -> dict[str, Any]:
    element = document["element"]
    return {
        "function": str(document["function"] or "")[:NAME_CHARACTERS_MAX] or None,
        "element": int(element) if element is not None else None,
        "line": _line(document),
        "message": str(document["error"]["message"])[:200],
    }


def _batch(document: dict[str, Any]) -> dict[str, Any]:
    step = document["step"]
    return {
        "made": "NaN" if int(document["nan"]) else "Inf",
        "from": str(document["from"]),
        "tensor": str(document["tensor"])[:NAME_CHARACTERS_MAX],
        "count": int(document["count"]),
        "rows": [
            {"row": int(one["row"]), "sample": str(one["sample"] or "")[:NAME_CHARACTERS_MAX] or None}
            for one in document["rows"][:ROWS_MAX]
        ],
        "step": int(step or 0) + 1,
        "line": _line(document),
        "message": str(document["error"]["message"])[:200],
    }


def _graph(document: dict[str, Any]) -> dict[str, Any]:
    since, now = document["from_step"], document["in_step"]
    return {
        "kind": str(document["kind"]),
        "from_step": int(since) if since is not None else None,
        "in_step": int(now) if now is not None else None,
        **{
            name: [str(one)[:NAME_CHARACTERS_MAX] for one in document[name][:ROWS_MAX]]
            for name in ("parameters", "carried", "held")
        },
        "line": _line(document),
        "message": str(document["error"]["message"])[:200],
    }


def _index(document: dict[str, Any]) -> dict[str, Any]:
    allowed = document["allowed"]
    return {
        "what": str(document["what"]),
        "allowed": [int(allowed[0]), int(allowed[1])] if allowed else None,
        "rows": [
            {"row": int(one["row"]), "value": int(one["value"]), "sample": str(one["sample"] or "") or None}
            for one in document["rows"][:ROWS_MAX]
        ],
        "line": None if document.get("late") else _line(document),
        "message": str(document["error"]["message"])[:200],
    }
