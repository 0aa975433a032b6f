"""The launched side of an onset search: runs the recorded command under an observer that replays and measures.

Run as ``python -m steadytrain.onset.measured_replay SOURCE RESULT.json OLD=NEW|- FROM UNTIL LEAD_S``. The measurements
go into ``measured.npz`` next to the result.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from steadytrain.core.levels import Level
from steadytrain.onset.departures import Course
from steadytrain.onset.measures import Key
from steadytrain.replay.command_runner import as_program, leave, run_followed
from steadytrain.replay.from_script import open_source
from steadytrain.replay.moved_files import Moved
from steadytrain.replay.step_bound import gates_bound
from steadytrain.storage.bundle import write_json

if TYPE_CHECKING:
    from steadytrain.capture.step.observers import StepObserver
    from steadytrain.replay.verdict import Replayed

MODULE = "steadytrain.onset.measured_replay"
MEASURED_FILE = "measured.npz"
EVERY_STEP = Level("onset", 1, 1, 1, None, 60.0)
"""All tensors and all module outputs, at every step."""


def write_course(path: Path, course: Course) -> None:
    names = json.dumps([[key.quantity, key.tensor] for key in course.keys])
    np.savez(path, steps=course.steps, values=course.values, keys=np.array(names))


def read_course(path: Path) -> Course:
    with np.load(path, allow_pickle=False) as held:
        keys = tuple(Key(quantity, tensor) for quantity, tensor in json.loads(str(held["keys"])))
        return Course(held["steps"], keys, held["values"])


def main(source: str, result: str, moved: str, first: str, until: str, lead_s: str) -> int:
    place = Moved.parse(moved)
    opened = open_source(Path(source), place)
    snapshot, last = opened.recording.choose(first=int(first), until=int(until))
    place.put_on_path()
    result_path = Path(result)

    def finished(course: Course, outcome: Replayed | str, rates: list[tuple[int, float]]) -> None:
        write_course(result_path.parent / MEASURED_FILE, course)
        document = {"cannot": outcome} if isinstance(outcome, str) else {"replayed": asdict(outcome), "rates": rates}
        write_json(result_path, document)
        leave()

    def measuring() -> StepObserver:
        from steadytrain.onset.batch_statistics import Batches
        from steadytrain.onset.measuring_replay import Measuring

        batches = Batches()
        batches.watch()
        made = Measuring(
            opened.recording,
            snapshot=snapshot,
            until=last,
            own_steps=opened.own_steps(snapshot.step, float(lead_s)),
            batches=batches,
            finished=finished,
        )
        made.gates_max = gates_bound(last)
        return made

    return run_followed(opened, measuring, name="onset", scratch=result_path.parent, level=EVERY_STEP)


if __name__ == "__main__":
    as_program(main)
