"""Send the documents of a run that is over to a tool: in a process of its own, which imports the library of the tool,
within a time limit. Called by a command that the user gave for this; nothing else sends after a run.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from steadytrain.core.errors import UsageError
from steadytrain.exporters import AUTO, NONE, check_to
from steadytrain.exporters.addresses import refuse_bad_addresses
from steadytrain.exporters.exporter import Document, Run, known_tools, load_tool
from steadytrain.exporters.exporter_process import child_environment
from steadytrain.exporters.exporter_queue import in_a_line
from steadytrain.exporters.run_places import read_place
from steadytrain.storage.documents import as_json
from steadytrain.storage.redaction import redact_text

SEND_S_MAX = 300.0
SAID_CHARACTERS_MAX = 300


def check_tools(names: Sequence[str]) -> tuple[str, ...]:
    """``names`` if each is a tool that keeps documents and is installed.

    Raises:
        UsageError: one is not, or the environment gives it a malformed address.
    """
    tools, described = check_to(names), known_tools()
    fit = [name for name, tool in described.items() if tool.keeps_documents]
    for name in tools:
        if name in (AUTO, NONE) or not described[name].keeps_documents:
            raise UsageError(f"--to {name}: it keeps no documents of a run; one of {', '.join(fit)}")
    refuse_bad_addresses(tools, os.environ)
    return tools


def tools_of(folder: Path) -> tuple[str, ...]:
    """The tools that a run went to and that keep documents."""
    return tuple(
        name for name, tool in known_tools().items() if tool.keeps_documents and read_place(folder, name) is not None
    )


def send(tool: str, run: Run, documents: Sequence[Document]) -> str:
    """Send ``documents`` of ``run`` to ``tool``, and say where they are.

    Raises:
        UsageError: they were not sent, or not all of them; the text says why.
    """
    asked = {"run": vars(run), "documents": [asdict(one) for one in documents]}
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__, tool],
            input=as_json(asked),
            capture_output=True,
            text=True,
            errors="replace",
            env=child_environment(),
            timeout=SEND_S_MAX,
        )
    except subprocess.TimeoutExpired:
        raise UsageError(f"{tool}: no answer within {SEND_S_MAX:g} s; not all was sent") from None
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        last = redact_text(" ".join(done.stderr.split())[-SAID_CHARACTERS_MAX:])
        raise UsageError(f"{tool}: its process ended with status {done.returncode}: {last or 'no word'}") from None
    if "error" in answer:
        raise UsageError(f"{tool}: not sent: {answer['error']}")
    return str(answer["where"])


def main(tool: str) -> int:
    """In the process: store what stdin holds, and answer on stdout."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what a library prints is no answer
    asked = json.load(sys.stdin)
    run = Run(**asked["run"])
    try:
        store = load_tool(tool).documents(run, read_place(Path(run.folder), tool))
        for document in asked["documents"]:
            store.keep(Document(**document))
        answer = {"where": store.close()}
    except Exception as error:
        answer = {"error": in_a_line(error)}
    with contextlib.suppress(OSError):
        os.write(answers, as_json(answer).encode() + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
