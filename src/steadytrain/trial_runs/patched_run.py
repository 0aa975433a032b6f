"""Runs the recorded command once more from its start with another text of one of its files, and follows its steps.

The text runs under the file's own name, in its folder, with its arguments and its module path. Its writes go into a
temporary folder, as in a replay. Launched as a program: ``python -m steadytrain.trial_runs.patched_run SOURCE ...``.
"""

from __future__ import annotations

import importlib.machinery
import json
import linecache
import math
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadytrain.core.json_values import number_from_json, number_to_json
from steadytrain.core.model import FIRST_STREAM
from steadytrain.replay.command_runner import as_program, leave, run_followed, run_recorded, told_first, watch_with
from steadytrain.replay.failing_step import check_launch, launch
from steadytrain.replay.from_script import open_source
from steadytrain.replay.moved_files import Moved, moved_environment
from steadytrain.storage.bundle import write_json

if TYPE_CHECKING:
    from steadytrain.capture.step.observers import StepObserver

MODULE = "steadytrain.trial_runs.patched_run"
TEXT, RESULT = "patched.txt", "followed.json"


@dataclass(frozen=True)
class Followed:
    """The steps of a patched script. ``losses`` and ``norms`` (of the gradient) have one value a step, None where none
    was measured; ``ended`` says why it has fewer steps than asked for, "" if it has them all. ``symptoms`` are those
    that the asked detectors saw."""

    losses: tuple[float | None, ...] = ()
    norms: tuple[float | None, ...] = ()
    finite: tuple[bool, ...] = ()
    ended: str = ""
    failed: bool = False
    symptoms: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wanted:
    """What is followed: so many ``steps`` of the optimizer ``stream``, by the ``detectors`` of these names as well."""

    steps: int
    stream: str = FIRST_STREAM
    detectors: Sequence[str] = ()


def follow(
    source: Path,
    text: str,
    wanted: Wanted,
    *,
    file: str = "",
    wait_s: float,
    moved: str,
    tell: Callable[[str], None] | None,
) -> Followed:
    """Runs ``text`` in place of the script of a bundle or run, as far as is ``wanted``, for at most ``wait_s`` seconds.

    Args:
        file: path of a module that the script imports, to which ``text`` belongs; "" for the script.

    Raises:
        UsageError: the command cannot be launched again.
    """
    place = Moved.parse(moved)
    environment = moved_environment(open_source(source, place).environment, place)
    check_launch(environment)
    with tempfile.TemporaryDirectory(prefix="steadytrain-patch-") as scratch:
        folder = Path(scratch)
        (folder / TEXT).write_text(text, encoding="utf-8")
        result = folder / RESULT
        why = launch(
            [
                "-m",
                MODULE,
                str(source.absolute()),
                str(folder),
                str(wanted.steps),
                moved,
                file,
                ",".join(wanted.detectors),
                wanted.stream,
            ],
            result,
            environment,
            folder=environment.get("cwd"),
            wait_s=wait_s,
            until="first update",
            limit="--budget",
            tell=tell,
        )
        if why is not None:
            return Followed(ended=why, failed=True)
        return _read(json.loads(result.read_text(encoding="utf-8")))


def _read(data: dict[str, Any]) -> Followed:
    def numbers(name: str) -> tuple[float | None, ...]:
        return tuple(None if one is None else number_from_json(one) for one in data[name])

    return Followed(
        numbers("losses"),
        numbers("norms"),
        tuple(data["finite"]),
        data["ended"],
        data["failed"],
        tuple(data["symptoms"]),
    )


def import_as(file: str, text: str) -> None:
    """From now on this process imports ``file`` with ``text`` as its source; the file stays."""
    path = os.path.abspath(file)
    theirs = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: importlib.machinery.SourceFileLoader, fullname: str) -> Any:
        if os.path.abspath(self.get_filename(fullname)) != path:
            return theirs(self, fullname)
        return compile(text, path, "exec", dont_inherit=True)

    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]


def main(source: str, folder: str, steps: str, moved: str, file: str, detectors: str, stream: str) -> int:
    place = Moved.parse(moved)
    opened = open_source(Path(source), place)
    place.put_on_path()
    scratch = Path(folder)
    text = (scratch / TEXT).read_text(encoding="utf-8")
    if file:
        import_as(file, text)
    seen: dict[str, Any] = {"losses": [], "norms": [], "finite": [], "ended": "", "failed": False}

    def done() -> None:
        write_json(scratch / RESULT, {**seen, "symptoms": _symptoms()})
        leave()

    def over(how: str, status: int | None, error: BaseException | None) -> int | None:
        failed = error is not None and not isinstance(error, SystemExit)
        said = f"{type(error).__name__}: {error}"[:400] if failed else "its loop was over"
        if seen["finite"] or failed:
            seen.update(ended=said, failed=failed)
            done()
        return None

    asked = detectors.split(",") if detectors else []
    own_text = None if file else text
    if not asked:
        run_followed(
            opened,
            lambda: _observer(seen, int(steps), done, stream),
            name="patch",
            scratch=scratch,
            ended=over,
            text=own_text,
        )
        return 0

    def attach() -> None:
        watch_with("patch", scratch, detectors=asked, observer=_observer(seen, int(steps), done, stream, replays=False))

    run_recorded(opened, attach, scratch=scratch, ended=told_first(over), text=own_text)
    return 0


def _symptoms() -> list[str]:
    """The names of what the detectors of this process saw, notes aside."""
    from steadytrain.capture.step import watcher as watchers

    launched = watchers.launched
    return sorted({one.name for one in launched.symptoms if one.severity != "note"}) if launched is not None else []


def _observer(
    seen: dict[str, Any], steps: int, done: Callable[[], None], counted: str, *, replays: bool = True
) -> StepObserver:
    from steadytrain.capture.step.observers import StepObserver

    class Counting(StepObserver):
        def gate(self, stream: Any, in_progress: Any, measured: Any) -> None:
            if stream.name != counted:
                return
            loss = math.fsum(measured.losses) / len(measured.losses) if measured.losses else None
            norm = measured.record.scalars.get("gradient_norm")
            seen["losses"].append(None if loss is None else number_to_json(loss))
            seen["norms"].append(None if norm is None else number_to_json(norm))
            seen["finite"].append(not measured.is_incident)
            if len(seen["finite"]) >= steps:
                done()

    counting = Counting()
    counting.replays = replays
    return counting


if __name__ == "__main__":
    as_program(main)
