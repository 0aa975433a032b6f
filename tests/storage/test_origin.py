"""A recorded command is known as one's own by a key of the user; where no key can be kept, it is a stranger's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import builders
from steadytrain.storage import origin
from steadytrain.storage.run_folder import open_run

COMMAND = {"argv": ["train.py", "--lr", "3"], "cwd": "/home/me", "script": "/home/me/train.py", "module": None}


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(origin, "TEMPORARY", tmp_path / "tmp")


def test_what_was_recorded_here_is_known_again_and_no_other_command_is() -> None:
    marked = json.loads(json.dumps(origin.with_origin({**COMMAND, "git": None})))
    assert origin.is_own(marked)
    assert origin.is_own({**marked, "git": {"commit": "later"}})
    for name, other in (("argv", ["train.py"]), ("cwd", "/"), ("script", "/tmp/x.py"), ("module", "x")):
        assert not origin.is_own({**marked, name: other})
    for wrong in (None, "", "é", 3, "0" * 64):
        assert not origin.is_own({**marked, "origin": wrong})


def test_another_users_key_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marked = origin.with_origin(COMMAND)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "theirs"))
    assert not origin.is_own(marked)
    origin.with_origin(COMMAND)
    assert not origin.is_own(marked)


def test_the_key_is_made_once_and_readable_by_the_user_alone(tmp_path: Path) -> None:
    first, second = origin.with_origin(COMMAND), origin.with_origin(COMMAND)
    (file,) = (tmp_path / "state" / "steadytrain").iterdir()
    assert first == second
    assert (file.name, file.stat().st_mode & 0o777, file.stat().st_size) == ("origin.key", 0o600, 32)
    file.chmod(0o644)
    assert not origin.is_own(first)


def test_a_home_that_takes_nothing_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("no folder", encoding="utf-8")
    (tmp_path / "home").write_text("no folder", encoding="utf-8")
    (tmp_path / "tmp").write_text("no folder", encoding="utf-8")
    marked = origin.with_origin(COMMAND)
    assert (marked["origin"], origin.is_own(marked)) == (None, False)
    (tmp_path / "tmp").unlink()
    assert origin.is_own(origin.with_origin(COMMAND))


def test_a_run_that_was_copied_stays_ones_own(tmp_path: Path) -> None:
    run = builders.write_run(tmp_path / "run", script="/home/me/train.py", cwd="/home/me")
    moved = run.rename(tmp_path / "moved")
    assert origin.is_own(open_run(moved).description)


def test_secrets_in_the_command_do_not_change_the_mark(tmp_path: Path) -> None:
    argv = ["train.py", "--hub-token", "Zq8vT2mK7w" * 3, "--api_key=" + "Ab3" * 9]
    run = builders.write_run(tmp_path / "run", script="/home/me/train.py", argv=argv)
    assert "Zq8vT2mK7w" not in (run / "run.json").read_text(encoding="utf-8")
    assert origin.is_own(open_run(run).description)
