"""``after.py RUNS_DIR NEXT BEFORE_NS``: look at the runs after a fault, and run once more in the same place.

Prints a JSON object: ``wrong``, what does not hold, in words; ``steps``, ``incidents`` and ``said`` (why the recording
stopped, by ``show --json``) of each run. ``BEFORE_NS`` is the moment of the fault; steps that ``progress.txt`` has
before it, but the last, have to be there. NEXT is the script of the run afterwards, or empty.
"""

from __future__ import annotations

import hashlib
import json
import os
import runpy
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

KEPT_GRADIENTS = 20
"""Newest steps whose gradients are there however far the retention thread came: it keeps the last 32."""


class Look:
    """What was found in one folder of runs."""

    def __init__(self, runs_dir: Path, before_ns: int) -> None:
        self.runs_dir = runs_dir
        self.wrong: list[str] = []
        self.steps: dict[str, int] = {}
        self.incidents: dict[str, list[str]] = {}
        self.said: dict[str, Any] = {}
        self.finished = finished_steps(runs_dir.parent / "progress.txt", before_ns)

    def run(self) -> None:
        for words in (("runs",), ("runs", "--json")):
            self._answer(*words, "--runs-dir", str(self.runs_dir), may_refuse=self.finished < 2)
        for folder in sorted(self.runs_dir.iterdir()) if self.runs_dir.is_dir() else []:
            if folder.is_dir() and not folder.name.startswith("."):
                self._run_folder(folder)

    def _run_folder(self, folder: Path) -> None:
        nothing = self.finished < 2
        name = str(folder)
        self._answer("show", name, may_refuse=nothing)
        shown = self._answer("show", name, "--json", may_refuse=nothing)
        table = self._answer("query", name, "SELECT step FROM steps ORDER BY step", "--csv", may_refuse=nothing)
        steps = [int(line) for line in table.split()[1:]]
        missing = sorted(set(range(1, self.finished)) - set(steps))
        if missing or len(set(steps)) != len(steps):
            self.wrong.append(f"{len(steps)} steps, {self.finished} were over; missing {missing[:5]}, or twice")
        self.steps[folder.name] = len(steps)
        if self.finished > 2:
            query = "SELECT DISTINCT step FROM gradients"
            have = {int(line) for line in self._answer("query", name, query, "--csv", may_refuse=False).split()[1:]}
            newest = max([self.finished, *steps])
            if lost := sorted(set(range(max(1, newest - KEPT_GRADIENTS), self.finished)) - have):
                self.wrong.append(f"gradients of the steps {lost[:5]} are missing")
        document = json.loads(shown) if shown else {}
        self.said[folder.name] = document.get("recording_stopped")
        self._bundles(folder, {Path(path).name for path in document.get("incidents", [])})
        self._recording(folder)

    def _bundles(self, folder: Path, names: set[str]) -> None:
        found = [
            path for path in (folder / "incidents").glob("*") if path.name != "trials" and not path.name.startswith(".")
        ]
        self.incidents[folder.name] = sorted(path.name for path in found)
        for name in names - {path.name for path in found}:
            self.wrong.append(f"show lists the bundle {name}, which is not there")
        for path in found:
            if path.name not in names:
                self.wrong.append(f"show does not list the bundle {path.name}")
            self.wrong += [f"bundle {path.name}: {one}" for one in broken_files(path)]
            self._answer("show", str(path), may_refuse=False)
            self._answer("show", str(path), "--json", may_refuse=False)
            self._recording(path)

    def _recording(self, source: Path) -> None:
        from steadytrain.storage.tape_files import find_recording, read_chunk, read_snapshot

        try:
            recording = find_recording(source)
            for chunk in recording.chunks:
                read_chunk(chunk)
            for snapshot in recording.snapshots:
                read_snapshot(snapshot)
        except Exception as error:
            self.wrong.append(f"the recording of {source.name} does not read: {error!r}"[:300])

    def _answer(self, *words: str, may_refuse: bool) -> str:
        from click.testing import CliRunner

        from steadytrain.cli.main import commands
        from steadytrain.core.errors import UsageError

        ended = CliRunner().invoke(commands, list(words))
        line = " ".join(Path(word).name if "/" in word else word for word in words[:3])
        said = ended.stderr.strip() or str(ended.exception)
        if ended.exception is not None and not isinstance(ended.exception, (SystemExit, UsageError)):
            self.wrong.append(f"`{line}` raised {ended.exception!r}"[:300])
        elif ended.exit_code and not (may_refuse and "\n" not in said):
            self.wrong.append(f"`{line}` refused: {said[-200:]}")
        return ended.stdout if ended.exit_code == 0 else ""


def finished_steps(progress: Path, before_ns: int) -> int:
    """The steps that the script had finished before the fault."""
    lines = progress.read_text().splitlines() if progress.exists() else []
    return sum(1 for line in lines if not before_ns or int(line.split()[1]) < before_ns)


def lost_checkpoints(work: Path) -> list[str]:
    """What the script had saved and does not load now. A kill in its own write spoils the file that it wrote in place,
    as it does without us: then a pin has to load."""
    lines = (work / "saves.txt").read_text().splitlines() if (work / "saves.txt").exists() else []
    newest = {name: int(step) for name, step in map(str.split, lines)}
    pins = list(work.glob("steadytrain-runs/run/checkpoints/*/*.pt"))
    wrong = [f"the pin {pin.parent.name}/{pin.name} does not load" for pin in pins if step_of(pin) is None]
    for name, step in newest.items():
        paths = [work / f"{name}.pt", *(pins if name == "saved" else [])]
        found = [one for path in paths if (one := step_of(path)) is not None]
        if not found or max(found) < step:
            wrong.append(f"of {name}.pt, saved at step {step}, there is {found or 'nothing'}")
    return wrong


def step_of(path: Path) -> int | None:
    """The step of a checkpoint that loads and is finite; 0 for the weights alone, which `train.py` saves."""
    import torch

    try:
        state = torch.load(path, weights_only=True)
    except Exception:
        return None
    weights = state.get("model", state)
    return int(state.get("step", 0)) if all(bool(one.isfinite().all()) for one in weights.values()) else None


def broken_files(bundle: Path) -> list[str]:
    """What the manifest says and the files do not; each file may also be the successor that the manifest announces."""
    try:
        files = json.loads((bundle / "manifest.json").read_text())["files"]
    except (OSError, ValueError, KeyError) as error:
        return [f"no manifest ({error!r})"]
    found = []
    for name, facts in files.items():
        try:
            data = (bundle / name).read_bytes()
        except OSError as error:
            found.append(f"{name} cannot be read ({error.strerror})")
            continue
        digest = hashlib.sha256(data).hexdigest()
        forms = [facts, facts.get("next") or facts]
        if not any(one["bytes"] == len(data) and one.get("sha256", digest) == digest for one in forms):
            found.append(f"{name} is not what the manifest says")
    return found


def left_over(runs_dir: Path) -> list[str]:
    """Files that only an interrupted writer leaves, below the folder of runs."""
    found = []
    for at, folders, names in os.walk(runs_dir):
        for name in [*folders, *names]:
            if name.startswith(".") or name.endswith((".part", ".tmp")):
                found.append(os.path.relpath(os.path.join(at, name), runs_dir))
        folders[:] = [name for name in folders if not name.startswith(".")]
    return sorted(found)


def in_fork(work: Any, out: int) -> int:
    """The exit status of ``work``, run in a fork whose output goes to ``out``."""
    process = os.fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    status = 1
    try:
        os.dup2(out, 1)
        work()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main() -> None:
    runs_dir, script, before_ns = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])

    def look() -> None:
        made = Look(runs_dir, before_ns)
        try:
            made.run()
            made.wrong += lost_checkpoints(runs_dir.parent)
        except Exception as error:
            made.wrong.append(f"looking raised {error!r} at {traceback.extract_tb(error.__traceback__)[-1]}")
        print(json.dumps({"wrong": made.wrong, "steps": made.steps, "incidents": made.incidents, "said": made.said}))

    def run_again() -> None:
        sys.argv = ["steadytrain", "run", "--runs-dir", str(runs_dir), "--name", "next", script, "3", "0", "0"]
        runpy.run_module("steadytrain", run_name="__main__", alter_sys=True)

    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        in_fork(look, file.fileno())
        file.seek(0)
        text = file.read()
    found = json.loads(text) if text else {"wrong": ["looking at the runs failed"], "steps": {}, "incidents": {}}
    if script:
        with open(os.devnull, "w") as nowhere:
            status = in_fork(run_again, nowhere.fileno())
        if status:
            found["wrong"].append(f"the next run in the same place ended with {status}")
    found["wrong"] += [f"left over: {name}" for name in left_over(runs_dir)]
    print(json.dumps(found))


main()
