"""What is about to run is said first; a stranger's command runs only with consent, and no script inside a bundle."""

from __future__ import annotations

import io
import json
import os
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import builders
from scripts import Entered, call
from steadytrain.replay.launch_notice import launch_notice
from steadytrain.replay.moved_files import Moved
from steadytrain.storage.bundle import seal, write_json
from steadytrain.storage.origin import with_origin

COMMANDS = [
    *(("locate",), ("replay",), ("diagnose", "--budget", "5s"), ("onset",), ("repro", "-o", "out"), ("debug",)),
    *(("verify", "--with", "clip"), ("bisect", "--good", "HEAD"), ("trial", "all"), ("fix",)),
]
NO_TORCH = "raise SystemExit('the script ran')\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def bundle(folder: Path, *, own: bool = False, script: Path | None = None, **changes: Any) -> Path:
    """A bundle whose recorded script leaves a file behind when it runs."""
    script = script or folder / "train.py"
    script.parent.mkdir(exist_ok=True)
    script.write_text(NO_TORCH, encoding="utf-8")
    command = {"argv": [script.name, "--lr", "3"], "script": str(script), "cwd": str(folder), "module": None}
    environment = {**builders.ENVIRONMENT, **command, "sources": {str(script): "0" * 64}, **changes}
    batches = {"format": "steadytrain.batches", "version": 1, "calls": [], "fetches": []}
    return builders.write_bundle(
        folder / "step-412", environment=with_origin(environment) if own else environment, batches=batches
    )


def arguments(command: tuple[str, ...], path: Path) -> list[str]:
    return [command[0], str(path), *command[1:]]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_strangers_bundle_runs_nothing_without_a_terminal(
    command: tuple[str, ...], tmp_path: Path, entered: Entered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("subprocess.Popen", None)
    for options in ([], ["--json"]):
        status, out, err = entered(
            *arguments(command, bundle(tmp_path / options.__repr__())), *options, folder=tmp_path
        )
        assert (status, out, len(err.splitlines())) == (2, "", 1), err
        assert "not recorded on this machine by you" in err
        assert "train.py --lr 3" in err
        assert "--trust" in err


def test_a_run_with_one_incident_of_a_stranger_is_a_strangers(tmp_path: Path) -> None:
    command = {"script": str(tmp_path / "train.py"), "cwd": str(tmp_path)}
    run = builders.bad_run(tmp_path / "run", **command)
    (bundle_of_run,) = (run / "incidents").iterdir()
    for is_own in (True, False):
        for path in (run, bundle_of_run):
            notice = launch_notice(path, Moved(None, None))
            assert (notice is None) if path == bundle_of_run and is_own else (notice and notice.is_own == is_own)
        write_json(bundle_of_run / "environment.json", {**builders.ENVIRONMENT, **command})
        seal(bundle_of_run)


def test_a_script_without_a_digest_is_compared_by_the_time_of_its_file(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("pass\n")
    run = builders.bad_run(tmp_path / "run", script=str(script), cwd=str(tmp_path))
    shutil.rmtree(run / "incidents")
    description = json.loads((run / "run.json").read_text())
    began = datetime.fromisoformat(description["started"]).timestamp()
    for later, said in ((-60, 0), (60, 1)):
        os.utime(script, (began + later, began + later))
        notice = launch_notice(run, Moved(None, None))
        assert notice is not None
        found = [one for one in notice.lines() if "written after the run began" in one]
        assert (len(found), any("nobody can see" in one for one in notice.lines())) == (said, False)


def test_a_script_inside_a_bundle_is_never_run(tmp_path: Path, entered: Entered, monkeypatch: Any) -> None:
    monkeypatch.setattr("subprocess.Popen", None)
    inside = tmp_path / "step-412" / "code.py"
    path = bundle(tmp_path, own=True, script=tmp_path / "train.py")
    document = json.loads((path / "environment.json").read_text(encoding="utf-8"))
    inside.write_text(NO_TORCH, encoding="utf-8")
    for changes in ({"script": str(inside)}, {"script": None, "module": "code", "cwd": str(path)}):
        changed = with_origin({**document, **changes})
        (path / "environment.json").write_text(json.dumps(changed), encoding="utf-8")
        (path / "batches.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
        seal(path)
        status, _, err = entered("locate", path, "--trust", folder=tmp_path)
        assert (status, len(err.splitlines())) == (2, 1)
        assert "is never run" in err


@pytest.mark.parametrize(("answer", "runs"), [("n\n", False), ("\n", False), ("y\n", True)])
def test_on_a_terminal_the_user_is_asked(
    answer: str, runs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from steadytrain.cli import _consent
    from steadytrain.core.errors import UsageError
    from steadytrain.replay.child_processes import about_to_launch

    err = Terminal()
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    monkeypatch.setattr("sys.stderr", err)
    done = []

    def body(**parameters: Any) -> int:
        about_to_launch()
        done.append(parameters)
        return 0

    command = _consent.before_launch(body)
    given = {"incident": str(bundle(tmp_path)), "runs_dir": tmp_path, "as_json": False, "trust": False}
    if runs:
        assert command(**given) == 0
    else:
        with pytest.raises(UsageError, match="nothing was run"):
            command(**given)
    assert bool(done) == runs
    assert err.getvalue().count("train.py --lr 3") == 1
    assert f"{tmp_path / 'train.py'}: the file has changed" in err.getvalue()


@pytest.mark.slow
def test_what_runs_and_what_differs_is_said_on_stderr_but_not_with_json(tmp_path: Path) -> None:
    path = bundle(tmp_path, own=True)
    copy = path.rename(tmp_path / "copy")  # in another place it stays one's own
    done = call("locate", copy)
    told = done.stderr.splitlines()
    assert told[0] == "steadytrain: runs python train.py --lr 3", done.stderr
    assert told[1] == f"  script {tmp_path / 'train.py'}, in {tmp_path}"
    assert f"  differs from what was recorded: {tmp_path / 'train.py'}: the file has changed" in told
    assert call("locate", copy, "--json").stderr == ""


def test_control_characters_of_a_strangers_command_are_made_visible(tmp_path: Path, entered: Entered) -> None:
    path = bundle(tmp_path, argv=["train.py", "\x1b[2J\x07"])
    _, _, err = entered("locate", path, folder=tmp_path)
    assert "\x1b" not in err
    assert "\x07" not in err
