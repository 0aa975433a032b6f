"""``steadytrain top``: one picture for a pipe, one document for a program, one line for a mistake, a screen."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import builders
from live_runs import LiveRun
from steadytrain.cli import _keys
from steadytrain.cli.top import command
from steadytrain.core.errors import UsageError
from steadytrain.storage.run_folder import RUN_FILE
from steadytrain.storage.run_index import INDEX_FILE
from terminals import Terminal


def top(*arguments: str | Path) -> str:
    result = CliRunner().invoke(command, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_a_pipe_gets_one_picture_without_escapes(tmp_path: Path) -> None:
    run = LiveRun(tmp_path / "run")
    run.train(30)
    for shown in (top("--runs-dir", tmp_path), top("run", "--runs-dir", tmp_path, "--once", "--total", "60")):
        assert "running  run  no symptom seen" in shown.splitlines()[0]
        assert "step 30" in shown
        assert "\x1b" not in shown
    assert "of 60 (50%)" in shown


def test_a_finished_run_is_shown_too(tmp_path: Path) -> None:
    builders.bad_run(tmp_path / "run")
    shown = top("--runs-dir", tmp_path)
    assert "stopped (exit status 1)" in shown
    assert "nonfinite-gradient" in shown
    assert "1 incident" in shown


def test_the_document(tmp_path: Path) -> None:
    builders.bad_run(tmp_path / "run")
    document = json.loads(top(tmp_path / "run", "--json"))
    assert (document["schema"], document["state"], document["step"]) == ("steadytrain.top/1", "stopped", 412)
    assert document["symptoms"][0]["name"] == "nonfinite-gradient"


def test_what_is_wrong_with_a_folder_is_one_line(tmp_path: Path) -> None:
    run = LiveRun(tmp_path / "run")
    run.train(2)
    run.run.close()
    bundle = builders.write_bundle(tmp_path / "bundle")
    for target, why in ((bundle, "an incident does not go on"), (tmp_path / "none", "no such run")):
        with pytest.raises(UsageError, match=why):
            top(target)
    (run.path / INDEX_FILE).write_bytes(b"damaged " * 100)
    with pytest.raises(UsageError, match="the run folder is damaged"):
        top(run.path)
    (run.path / RUN_FILE).write_text("{", encoding="utf-8")
    with pytest.raises(UsageError, match="not readable"):
        top(run.path)


def test_keys_have_names_and_unknown_sequences_have_none() -> None:
    assert _keys.names_of(b"q\x1b[A\x1b[6~/\x1b\r\t\x7f") == [
        "q",
        "up",
        "page-down",
        "/",
        "escape",
        "enter",
        "tab",
        "backspace",
    ]
    assert _keys.names_of(b"\x1b[1;5Cz\x1b[200~") == ["z"]
    assert _keys.names_of("ü\xff".encode("latin-1"))


def live(runs_dir: Path) -> Terminal:
    return Terminal([sys.executable, "-m", "steadytrain", "top", "--runs-dir", str(runs_dir), "--every", "0.2"])


@pytest.mark.slow
def test_the_screen_follows_the_run_and_ends_with_it(tmp_path: Path) -> None:
    run = LiveRun(tmp_path / "run")
    run.train(10)
    with live(tmp_path) as screen:
        screen.wait_for("step 10")
        run.train(5)
        screen.wait_for("step 15")
        screen.press("?")
        screen.wait_for("Any key goes back")
        screen.press("x")
        run.end()
        shown = screen.wait_for("next  ")
        assert screen.status() == 0
    assert "\x1b[?1049h" in shown
    assert "finished (exit status 0)" in shown.rpartition("\x1b[?1049l")[2]


@pytest.mark.slow
@pytest.mark.long
def test_q_ends_the_screen_and_a_folder_that_vanishes_is_one_line(tmp_path: Path) -> None:
    run = LiveRun(tmp_path / "run")
    run.train(10)
    with live(tmp_path) as screen, live(tmp_path) as other:
        screen.wait_for("step 10")
        other.wait_for("step 10")
        screen.press("q")
        screen.wait_for("the run goes on")
        assert screen.status() == 0
        run.run.close()
        run.path.rename(tmp_path / ".moved")
        gone = other.wait_for("the run folder is gone")
        assert other.status() == 2
    assert "Traceback" not in gone
