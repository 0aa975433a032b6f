"""Facts of a run that its own error ended, from the evidence in its folder. This launches no script."""

from __future__ import annotations

import json
from typing import Any

from steadytrain.storage.run_folder import Run

INDEX_FILE, INDEX_SCHEMA = "evidence/index-out-of-range.json", "steadytrain.index-out-of-range/1"
BYTES_MAX = 1 << 20
ROWS_MAX = 8


def facts_of_crash(run: Run | None) -> dict[str, Any]:
    """``index_outside``, where an index outside its table ended the run; else empty. A damaged file is no evidence."""
    if run is None:
        return {}
    path = run.path / INDEX_FILE
    try:
        if path.stat().st_size > BYTES_MAX:
            return {}
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["schema"] != INDEX_SCHEMA:
            return {}
        return {"index_outside": _index(document)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return {}


def _index(document: dict[str, Any]) -> dict[str, Any]:
    frames = [frame for frame in document["error"]["frames"] if "site-packages" not in str(frame["file"])]
    line = f"{str(frames[-1]['file']).rsplit('/', 1)[-1]}:{int(frames[-1]['line'])}" if frames else None
    allowed = document["allowed"]
    return {
        "what": str(document["what"]),
        "allowed": [int(allowed[0]), int(allowed[1])] if allowed else None,
        "rows": [
            {"row": int(one["row"]), "value": int(one["value"]), "sample": str(one["sample"] or "") or None}
            for one in document["rows"][:ROWS_MAX]
        ],
        "line": line,
        "message": str(document["error"]["message"])[:200],
    }
