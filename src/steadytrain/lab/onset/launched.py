"""The launched side of an onset: the recorded command under a follower that replays and measures.

Run as ``python -m steadytrain.lab.onset.launched SOURCE RESULT.json OLD=NEW|- FROM UNTIL LEAD_S``. What was measured
lies beside the result, in ``measured.npz``.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from steadytrain.errors import UsageError
from steadytrain.lab.moved import Moved
from steadytrain.lab.onset.departures import Course
from steadytrain.lab.onset.measures import Key
from steadytrain.lab.relaunch import run_recorded
from steadytrain.lab.replay import open_source
from steadytrain.store.bundle import write_json

if TYPE_CHECKING:
    from steadytrain.lab.judgement import Replayed

MODULE = "steadytrain.lab.onset.launched"
MEASURED_FILE = "measured.npz"


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
        sys.stdout.flush()
        # Not through the script's own exit code: it may save, and these are not the run's weights to save.
        os._exit(0)

    def attach() -> None:
        from steadytrain.capture import watcher as watchers
        from steadytrain.capture.books import Settings
        from steadytrain.capture.failopen import Guard
        from steadytrain.lab.onset.batches import Batches
        from steadytrain.lab.onset.following import EVERY_STEP, Measuring

        def tell(text: str) -> None:
            print(f"steadytrain: {text}", file=sys.stderr, flush=True)

        batches = Batches()
        batches.watch()
        follower = Measuring(
            opened.recording,
            snapshot=snapshot,
            until=last,
            own_steps=opened.own_steps(snapshot.step, float(lead_s)),
            batches=batches,
            finished=finished,
        )
        # Here nothing is a guest: an error of ours would give a wrong answer if the script went on.
        Guard.reraise = True
        settings = Settings(run_dir=result_path.parent / "unused", run_name="onset", policy="observe", level=EVERY_STEP)
        watchers.launched = watchers.Watcher(settings, tell=tell, follower=follower)

    return run_recorded(opened, attach)


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except UsageError as error:
        print(f"steadytrain: {error}", file=sys.stderr)
        sys.exit(2)
