"""Options of ``run`` from the environment and from a settings file, and what ``doctor`` shows of them."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import click
import pytest

from scripts import bare, command, finished, write_script
from steadytrain.cli import _settings, _settings_file, doctor, run, show
from steadytrain.cli._settings_shown import settings_here, settings_lines
from steadytrain.core.errors import UsageError
from steadytrain.core.incident import MAX_SKIPS_DEFAULT
from steadytrain.core.switch import is_off

ROOT = Path(__file__).parents[2]
VALUES: dict[str, str] = {
    "compiled": "inside",
    "fail-on": "warning",
    "level": "light",
    "notify-at": "warning",
    "policy": "skip",
    "seed": "7",
}
"""A value for each option that takes no arbitrary text."""


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in os.environ:
        if name == "STEADYTRAIN" or (name.startswith("STEADYTRAIN_") and name not in _settings.OTHER_VARIABLES):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def parsed(*arguments: str) -> dict[str, Any]:
    """The parameters that ``run`` would get."""
    return run.command.make_context("run", [*arguments, "train.py"]).params


def other_value(option: click.Option) -> str:
    """A value that is not the default, as text."""
    if option.is_flag:
        return "1"
    number = isinstance(option.type, click.types.IntParamType)
    return VALUES.get(_settings.name_of(option), "7" if number else "word")


def as_toml(option: click.Option) -> str:
    value = other_value(option)
    if option.is_flag:
        return "true"
    return value if isinstance(option.type, click.types.IntParamType) else json.dumps(value)


OPTIONS = list(_settings.options_of(run.command))
each_option = pytest.mark.parametrize("option", OPTIONS, ids=_settings.name_of)


@each_option
def test_every_option_is_read_from_the_environment(option: click.Option, monkeypatch: pytest.MonkeyPatch) -> None:
    before = parsed()[option.name or ""]
    monkeypatch.setenv(_settings.variable_of(option), other_value(option))
    value = parsed()[option.name or ""]
    assert value != before
    assert (
        value
        == parsed(*([f"--{_settings.name_of(option)}"] + [other_value(option)] * (not option.is_flag)))[
            option.name or ""
        ]
    )


@each_option
def test_every_option_is_read_from_a_file(option: click.Option, tmp_path: Path) -> None:
    before = parsed()[option.name or ""]
    (tmp_path / "pyproject.toml").write_text(f"[tool.steadytrain.run]\n{_settings.name_of(option)} = {as_toml(option)}")
    value = parsed()[option.name or ""]
    assert value != before


def test_no_option_has_the_variable_of_another_purpose() -> None:
    variables = {_settings.variable_of(option) for option in OPTIONS}
    assert len(variables) == len(OPTIONS)
    assert variables & _settings.OTHER_VARIABLES == {"STEADYTRAIN_RUNS_DIR"}


def test_every_variable_in_the_source_is_known() -> None:
    places = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").glob("*.py"), ROOT / "Makefile"]
    found = {name for path in places for name in re.findall(r"STEADYTRAIN_[A-Z_]*[A-Z]", path.read_text("utf-8"))}
    assert found <= {_settings.variable_of(option) for option in OPTIONS} | _settings.OTHER_VARIABLES


def test_what_comes_before_what(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "steadytrain.toml").write_text('[run]\nmax_skips = 2\nlevel = "light"\npolicy = "skip"\n')
    monkeypatch.setenv("STEADYTRAIN_MAX_SKIPS", "3")
    monkeypatch.setenv("STEADYTRAIN_POLICY", "")  # an empty variable is none
    params = parsed("--level", "full")
    assert [params[name] for name in ("max_skips", "level", "policy", "state_mb")] == [3, "full", "skip", 4096]
    assert parsed("--max-skips", "4")["max_skips"] == 4


def test_a_wrong_value_that_does_not_hold_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEADYTRAIN_MAX_SKIPS", "abc")
    assert parsed("--max-skips", "4")["max_skips"] == 4


def test_the_file_of_the_script_comes_before_that_of_the_working_folder(tmp_path: Path) -> None:
    inner = tmp_path / "project" / "src"
    inner.mkdir(parents=True)
    (tmp_path / "steadytrain.toml").write_text("[run]\nmax-skips = 2\n")
    (inner.parent / "pyproject.toml").write_text('[tool.steadytrain.run]\nmax-skips = 3\nruns-dir = "runs"\n')
    (inner / "pyproject.toml").write_text("[tool.other]\nbroken =\n")  # says nothing of ours
    found = run.command.make_context("run", [str(inner / "train.py")]).params
    assert (found["max_skips"], found["runs_dir"]) == (3, inner.parent / "runs")
    assert parsed()["max_skips"] == 2
    assert run.command.make_context("run", ["-m", "train"]).params["max_skips"] == 2


def test_the_folder_of_runs_is_a_setting_of_every_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "steadytrain.toml").write_text('[run]\nruns-dir = "mine"\n')
    assert show.command.make_context("show", []).params["runs_dir"] == tmp_path / "mine"
    monkeypatch.setenv("STEADYTRAIN_RUNS_DIR", "yours")
    assert show.command.make_context("show", []).params["runs_dir"] == Path("yours")
    assert show.command.make_context("show", ["--runs-dir", "third"]).params["runs_dir"] == Path("third")


ENVIRONMENTS = [
    ("MAX_SKIPS", "abc", "'abc' is not a valid integer"),
    ("MAX_SKIPS", "0", "0: must be at least 1; to skip nothing, use --policy stop"),
    ("LEVEL", "hgih", "'hgih': no such level; one of light, standard, full"),
    ("WITH", "clip=1", "--with clip=1: it needs --resume-from INCIDENT"),
    ("FAIL_ON", "fatal", "'fatal' is not one of 'warning', 'critical'"),
    ("CONTINUES", "none-such", "none-such: no such run or incident"),
    ("KEEP_REWIND", "maybe", "'maybe' is not a valid boolean"),
]


def refusal(*arguments: str) -> str:
    with pytest.raises(UsageError) as refused:
        run.command.main([*arguments, "train.py"], prog_name="run", standalone_mode=False)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(("name", "value", "why"), ENVIRONMENTS)
def test_an_error_names_the_variable(
    name: str, value: str, why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").touch()
    monkeypatch.setenv(f"STEADYTRAIN_{name}", value)
    assert refusal().startswith(f"STEADYTRAIN_{name}={value}: {why}")


def test_an_error_of_the_command_line_names_no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEADYTRAIN_POLICY", "skip")
    assert refusal("--max-skips", "0").startswith("--max-skips 0: ")


def test_values_that_contradict_each_other_are_both_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "steadytrain.toml").write_text('[run]\ncontinues = "a"\n')
    monkeypatch.setenv("STEADYTRAIN_RESUME_FROM", "b")
    expected = f'{tmp_path}/steadytrain.toml: continues = "a", STEADYTRAIN_RESUME_FROM=b: --resume-from and --continues'
    assert refusal().startswith(expected)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[run]\nmax-skips = true", "max-skips = true: must be a whole number, without quotes"),
        ('[run]\nmax-skips = "3"', 'max-skips = "3": must be a whole number, without quotes'),
        ("[run]\nmax-skips = 3.5", "max-skips = 3.5: must be a whole number"),
        ("[run]\nevery-step = 1", "every-step = 1: must be true or false"),
        ("[run]\nlevel = 3", 'level = 3: must be a text, in quotes, such as "standard"'),
        ("[run]\nwith = [1]", "with = 1: must be a text or a list of texts"),
        ("[run]\npolcy = 'skip'", "[run] polcy: no such option of run; did you mean policy?"),
        ("[run]\nmodule = true", "[run] module: no such option of run"),
        ("[run]\nmax-skips = 1\nmax_skips = 2", "[run] max-skips: given twice"),
        ("[runs]\nmax-skips = 1", "runs: not known; the options of run stand in [run]"),
        ("run = 3", "run must be a table: [run]"),
        ("[run", "not TOML: "),
        ("[run]\nseed = 99999999999999999999", "not TOML: seed is a whole number of more than 64 bits"),
    ],
)
def test_an_error_of_a_file_names_it(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "steadytrain.toml").write_text(text)
    assert refusal().startswith(f"{tmp_path}/steadytrain.toml: {why}")


def test_a_broken_project_file_is_an_error_only_if_it_has_settings(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project\n")
    assert parsed()["max_skips"] == MAX_SKIPS_DEFAULT
    (tmp_path / "pyproject.toml").write_text("[tool.steadytrain.run]\nmax-skips =\n")
    assert refusal().startswith(f"{tmp_path}/pyproject.toml: not TOML")


def test_a_file_of_another_user_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "steadytrain.toml").write_text("[run]\nmax-skips = 3\n")
    monkeypatch.setattr(_settings_file, "_is_trusted", lambda path, start: False)
    assert parsed()["max_skips"] == MAX_SKIPS_DEFAULT
    assert f"warning: {tmp_path}/steadytrain.toml: not read: it belongs to another user" in capsys.readouterr().err


def test_an_unknown_variable_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("STEADYTRAIN_POLCY", "skip")
    parsed()
    line = "steadytrain: warning: STEADYTRAIN_POLCY: no option has this name; did you mean STEADYTRAIN_POLICY?\n"
    assert capsys.readouterr().err == line


def test_no_setting_changes_the_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("STEADYTRAIN_LEVEL", "no-such-level")
    run.command.main(["--help"], prog_name="run", standalone_mode=False)
    assert "no-such-level" not in capsys.readouterr().out


# doctor


def test_doctor_shows_what_holds_and_where_it_comes_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "steadytrain.toml").write_text("[run]\nmax-skips = 3\nlevel = 'light'\n")
    monkeypatch.setenv("STEADYTRAIN_LEVEL", "full")
    found = settings_here(None)
    rows = {row["option"]: (row["value"], row["source"], row["from"]) for row in found["options"]}
    assert rows["level"] == ("full", "environment", "STEADYTRAIN_LEVEL")
    assert rows["max-skips"] == ("3", "file", f"{tmp_path}/steadytrain.toml")
    assert rows["policy"] == ("stop", "default", "")
    assert rows["seed"] == ("", "default", "")
    assert len(rows) == len(OPTIONS)
    assert found["problems"] == []
    assert [line.split() for line in settings_lines(found)[1:3]] == [
        ["max-skips", "3", f"{tmp_path}/steadytrain.toml"],
        ["level", "full", "STEADYTRAIN_LEVEL"],
    ]


@pytest.mark.parametrize(("name", "value", "why"), [row for row in ENVIRONMENTS if row[0] != "CONTINUES"])
def test_doctor_says_what_is_wrong(name: str, value: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"STEADYTRAIN_{name}", value)
    (problem,) = settings_here(None)["problems"]
    assert problem.startswith(f"STEADYTRAIN_{name}={value}: {why}")


def test_doctor_says_what_is_wrong_with_a_file_and_the_switch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "steadytrain.toml").write_text("[run")
    monkeypatch.setenv("STEADYTRAIN", "perhaps")
    first, second = settings_here(None)["problems"]
    assert first == "STEADYTRAIN=perhaps: must be 0, which switches everything off, or 1, or not set"
    assert second.startswith(f"{tmp_path}/steadytrain.toml: not TOML")


def test_doctor_shows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    token = "ghp_" + "0123456789abcdefghij" + "ABCDEFGHIJ012345"
    monkeypatch.setenv("STEADYTRAIN_NAME", token)
    monkeypatch.setenv("STEADYTRAIN_TO", "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ")
    monkeypatch.setenv("STEADYTRAIN_CONTINUES", "x" * 500 + "\x1b[31m")
    document = json.dumps(settings_here(None))
    assert token not in document
    assert "T1JJ3T3L2" not in document
    assert "\\u001b" not in document
    assert len(document) < 8000


def test_doctor_has_the_settings_of_a_script(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "steadytrain.toml").write_text("[run]\nmax-skips = 3\n")
    script = tmp_path / "project" / "train.py"
    assert doctor.command.make_context("doctor", [str(script)]).params["script"] == script
    assert settings_here(script)["file"] == str(tmp_path / "project" / "steadytrain.toml")
    assert settings_here(None)["file"] is None


# off

SCRIPT = """
import os, subprocess, sys
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
if "watch" in sys.argv:
    import steadytrain
    watch = steadytrain.watch(net, optimizer, policy="no-such-policy.toml")
    watch.set_fact("a", 1)
    print("watch", watch.steps, file=sys.stderr)
for step in range(4):
    loss = net(torch.randn(8, 4)).pow(2).mean() * (torch.nan if step == 2 else 1.0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
if "watch" in sys.argv:
    with watch.update():
        watch.close()
print(net.weight.tolist(), nn.Module.__call__.__qualname__, torch.optim.Optimizer.__init__.__module__)
print("PYTHONPATH" in os.environ and "start" in os.environ["PYTHONPATH"], sys.argv)
sys.exit(3)
"""


@pytest.mark.slow
def test_everything_is_switched_off(tmp_path: Path) -> None:
    script = write_script(tmp_path, SCRIPT).name
    off = {"STEADYTRAIN": "0", "STEADYTRAIN_MAX_SKIPS": "abc"}
    plain = finished(bare(script), folder=tmp_path)
    ours = finished(command("run", "--policy", "missing.toml", script), folder=tmp_path, environment=off)
    inside = finished(bare(script, "watch"), folder=tmp_path, environment=off)
    assert plain.returncode == ours.returncode == inside.returncode == 3
    assert ours.stdout == plain.stdout
    assert inside.stdout.splitlines()[0] == plain.stdout.splitlines()[0]
    assert ours.stderr == "steadytrain: switched off by STEADYTRAIN=0; nothing is watched\n"
    assert inside.stderr == "watch {}\n"
    assert [path.name for path in tmp_path.iterdir()] == [script]


def test_a_script_that_a_command_of_ours_launched_saves_over_nothing_though_switched_off(tmp_path: Path) -> None:
    saved = tmp_path / "scores.txt"
    saved.write_text("mine", encoding="utf-8")
    script = write_script(tmp_path, "open('scores.txt', 'w').write('later')\n").name
    off = {"STEADYTRAIN": "0", "STEADYTRAIN_SCRATCH": str(tmp_path / "scratch")}
    ended = finished(command("run", script), folder=tmp_path, environment=off)
    assert ended.returncode == 0, ended.stderr
    assert saved.read_text(encoding="utf-8") == "mine"


def test_a_callback_is_switched_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from steadytrain.integrations.fits import Fit

    monkeypatch.setenv("STEADYTRAIN", "off")
    fit = Fit("trainer", {"policy": "no-such-policy.toml"})
    fit.begin(torch.nn.Linear(2, 1), None)
    fit.describe({}, global_step=0, planned_steps=3)
    fit.stepped(1)
    fit.evaluated(1, {"loss": 1.0})
    fit.end()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("value", "off"), [("0", True), ("OFF", True), ("no", True), ("1", False), ("", False)])
def test_the_values_of_the_switch(value: str, off: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEADYTRAIN", value)
    assert is_off() is off
