"""Options that another one makes meaningless: refused where they are typed, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import steadytrain
from scripts import call
from steadytrain.attach.idle_options import refuse_idle
from steadytrain.attach.options import Options
from steadytrain.core.errors import UsageError

IDLE: list[tuple[dict[str, Any], str]] = [
    ({"max_skips": 3}, "--max-skips 3: --policy stop skips no update; use --policy skip, or leave it out"),
    ({"max_skips": 5, "policy": "observe"}, "--max-skips 5: --policy observe skips no update"),
    ({"keep_rewind": True, "rewind_mb": 0}, "--keep-rewind: --rewind-mb 0 makes no tape"),
    ({"notify_at": "warning"}, "--notify-at warning: nobody is alerted; add --notify URL or --on-incident COMMAND"),
    ({"notify_per_hour": 3}, "--notify-per-hour 3: nobody is alerted"),
    ({"notify_quiet": "22:00-07:00"}, "--notify-quiet 22:00-07:00: nobody is alerted"),
    ({"notify_quiet": "22:00-07:00", "on_incident": "true"}, "it holds for addresses alone; add --notify URL"),
]
USED: list[dict[str, Any]] = [
    {"max_skips": 3, "policy": "skip"},
    {"max_skips": 3, "policy": "steady"},
    {"keep_rewind": True},
    {"notify_at": "warning", "on_incident": "true"},
    {"notify_per_hour": 3, "on_incident": "true"},
    {"policy": "observe", "rewind_mb": 0},
]


@pytest.mark.parametrize(("given", "why"), IDLE)
def test_an_option_that_nothing_uses_is_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError) as refused:
        refuse_idle(Options(**given), given)
    assert why in str(refused.value)
    refuse_idle(Options(**given), ())  # as a settings file may have it


@pytest.mark.parametrize("given", USED)
def test_an_option_that_is_used_is_not_refused(given: dict[str, Any]) -> None:
    refuse_idle(Options(**given), given)


def test_a_policy_of_a_file_names_its_own_entry(tmp_path: Path) -> None:
    policy = tmp_path / "mine.toml"
    policy.write_text('policy = "skip"\n', encoding="utf-8")
    given = {"max_skips": 3, "policy": str(policy)}
    with pytest.raises(UsageError, match=r"mine.toml says this itself; write skips-in-a-row = 3 into its \[budget\]"):
        refuse_idle(Options(**given), given)
    policy.write_text('policy = "skip"\n[budget]\nskips-in-a-row = 3\n', encoding="utf-8")
    assert Options(policy=str(policy)).steering_policy().budget.skips_in_a_row == 3


def test_the_command_refuses_what_is_typed_and_takes_what_a_variable_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text("print('started')", encoding="utf-8")
    words = ("--to", "none", "--runs-dir", str(tmp_path / "runs"), str(tmp_path / "train.py"))
    done = call("run", "--max-skips", "5", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "steadytrain: --max-skips 5: --policy stop skips no update; use --policy skip, or leave it out\n"
    )
    monkeypatch.setenv("STEADYTRAIN_MAX_SKIPS", "3")
    assert "started" in call("run", *words).stdout
    monkeypatch.setenv("STEADYTRAIN_POLICY", "skip")
    assert "started" in call("run", "--max-skips", "4", *words).stdout


def test_watch_refuses_it_too(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with pytest.raises(UsageError, match="--max-skips 3: --policy stop skips no update"):
        steadytrain.watch(max_skips=3, runs_dir=tmp_path)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--name", "x"), "--name x: no run is made that could have it; add --then-run, or leave it out"),
        (("--checks", "initial-loss", "--skip", "initial-loss"), "--skip initial-loss: it leaves none of --checks"),
    ],
)
def test_preflight_refuses_what_is_never_used(words: tuple[str, ...], why: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text("print('started')", encoding="utf-8")
    done = call("preflight", *words, str(tmp_path / "train.py"))
    assert (done.returncode, len(done.stderr.splitlines()), done.stdout) == (2, 1, "")
    assert why in done.stderr
