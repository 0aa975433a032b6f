"""The files that a replaying process leaves for its launcher: result, environment and, if requested, trace.

The result is written last: if it exists, the others are complete.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from steadytrain.capture.incident import environment, source_hashes
from steadytrain.replay.step_trace import StepTrace
from steadytrain.replay.verdict import RUN_EAGERLY, Replayed
from steadytrain.storage.bundle import write_json

ENVIRONMENT_FILE = "environment.json"
TRACE_FILE = "trace.json"


def write_output(result_path: Path, result: Replayed | str, trace: StepTrace | None) -> None:
    """Writes the files. ``result`` is a text if the step could not be replayed: the reason."""
    write_json(result_path.parent / ENVIRONMENT_FILE, present())
    if trace is not None:
        operations = [operation.to_json() for operation in trace.operations]
        notes = [note for note in (trace.trouble, RUN_EAGERLY if trace.compiled else None) if note]
        write_json(result_path.parent / TRACE_FILE, {"operations": operations, "notes": notes})
    write_json(result_path, {"cannot": result} if isinstance(result, str) else {"replayed": asdict(result)})


def present() -> dict[str, Any]:
    """This process in the form of an incident's ``environment.json``."""
    return {
        **environment.command_facts(),
        "versions": environment.versions(),
        "device": environment.devices(),
        "numerics": environment.numerics(),
        "sources": source_hashes.source_digests(),
    }
