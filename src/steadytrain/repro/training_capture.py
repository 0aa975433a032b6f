"""The launched side for a rising loss: replays recorded steps and captures each step's loss.

In a window of steps around the onset, every operation from weights and batch to the loss is recorded. At the gate of
the
first of them, weights, optimizer state and gradients are recorded too. Updates are not traced: the script calls torch's
own optimizer.

Run as ``python -m steadytrain.repro.training_capture SOURCE FOLDER``. The folder contains the request and receives the
result.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadytrain.replay.command_runner import as_program, leave, run_followed
from steadytrain.replay.from_script import open_source
from steadytrain.replay.moved_files import NOT_MOVED, Moved
from steadytrain.replay.step_bound import gates_bound
from steadytrain.storage.bundle import write_json

if TYPE_CHECKING:
    from steadytrain.capture.step.observers import StepObserver
    from steadytrain.replay.step_trace import StepTrace
    from steadytrain.replay.verdict import Replayed

MODULE = "steadytrain.repro.training_capture"
REQUEST, RESULT, TENSORS = "stepping.json", "stepped.json", "stepped.pt"


@dataclass(frozen=True)
class Request:
    """Captures steps ``first`` to ``last``. The script computes the steps before itself if they fit into ``lead_s``
    seconds."""

    first: int
    last: int
    lead_s: float


def main(source: str, folder_name: str) -> int:
    folder = Path(folder_name)
    request = Request(**json.loads((folder / REQUEST).read_text(encoding="utf-8")))
    opened = open_source(Path(source), Moved.parse(NOT_MOVED))
    snapshot, last = opened.recording.choose(first=None, until=request.last, onset=request.first)

    def looking() -> StepObserver:
        from steadytrain.replay.engine import Replayer
        from steadytrain.repro.step_capture import LooksAfter, StepCapture

        def done(outcome: Replayed | str, traced: StepTrace | None) -> None:
            _leave(folder, capture.left(None if not isinstance(outcome, str) else outcome))

        own = opened.own_steps(snapshot.step, request.lead_s)
        replayer = Replayer(
            opened.recording, snapshot=snapshot, until=last, own_steps=own, final=None, done=done, trace_step=None
        )
        capture = StepCapture(own_steps=own, replayed_from=snapshot.step + 1, window=range(request.first, last + 1))
        made = LooksAfter(replayer, capture)
        made.gates_max = gates_bound(last)
        return made

    return run_followed(opened, looking, name="repro", scratch=folder)


def _leave(folder: Path, left: tuple[Mapping[str, Any], Mapping[str, Any]]) -> None:
    """Writes the capture and ends the process without the script's exit code, which might save."""
    import torch

    document, tensors = left
    torch.save(dict(tensors), folder / TENSORS)
    write_json(folder / RESULT, document)
    leave()


if __name__ == "__main__":
    as_program(main)
