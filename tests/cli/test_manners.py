"""The same option means the same in every command, and a report ends with one command that can be pasted."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import builders
from steadytrain.cli import _options
from steadytrain.cli.main import commands
from steadytrain.core.errors import UsageError
from steadytrain.core.own_command import own_command


def every_command() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(commands)

    def below(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
        if isinstance(command, click.Group):
            for inner, one in command.commands.items():
                yield from below(f"{name} {inner}", one)
        else:
            yield name, command

    for name in commands.list_commands(context):
        found = commands.get_command(context, name)
        assert found is not None
        yield from below(name, found)


def options(flag: str) -> dict[str, click.Option]:
    """The option of each command that has ``flag``."""
    return {
        name: one
        for name, command in every_command()
        for one in command.params
        if isinstance(one, click.Option) and flag in one.opts
    }


def test_json_is_one_document_and_nothing_else() -> None:
    found = options("--json")
    assert len(found) > 20
    for name, option in found.items():
        assert option.opts == ["--json"], name
        assert option.is_flag or option.flag_value == "json", name
        assert (option.help or "").startswith("Print"), name
        assert "JSON document" in (option.help or ""), name


def test_a_budget_is_a_time_with_a_unit() -> None:
    found = options("--budget")
    assert set(found) == {"debug", "diagnose", "fix", "trial"}
    for name, option in found.items():
        assert option.metavar == "TIME", name
        assert not isinstance(option.default, str) or _options.seconds(option.default) > 0, name
    assert (_options.seconds("90s"), _options.seconds("10m"), _options.seconds("1h")) == (90, 600, 3600)


def test_o_is_the_output_everywhere() -> None:
    found = options("-o")
    results = {"analyze", "audit", "check-data", "compare", "preflight"}
    assert set(found) == {"bundle strip", "debug", "report", "repro", *results}
    for name, option in found.items():
        older = ["--html"] if name in ("analyze", "compare") else []
        assert option.opts == ["-o", "--output", *older], name
        assert option.metavar is None, name
        assert isinstance(option.type, click.Path), name


def test_a_page_goes_to_standard_output(tmp_path: Path) -> None:
    bad = builders.bad_run(tmp_path / "bad")
    done = CliRunner().invoke(commands, ["report", str(bad), "-o", "-"], catch_exceptions=False)
    assert done.stdout.startswith("<!DOCTYPE html>")
    assert done.stdout.rstrip().endswith("</html>")
    assert "next " in done.stderr
    assert list(tmp_path.iterdir()) == [bad]


@pytest.mark.parametrize("command", [("repro", "x"), ("bundle", "strip", "x")])
def test_a_folder_does_not(command: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="name a folder"):
        CliRunner().invoke(commands, [*command, "-o", "-"], catch_exceptions=False)


# What comes next.


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    builders.bad_run(tmp_path / "steadytrain-runs" / "bad")
    builders.quiet_run(tmp_path / "steadytrain-runs" / "quiet")
    rows = "\n".join(f"{step},{'nan' if step > 90 else 1 / step}" for step in range(1, 120))
    (tmp_path / "log.csv").write_text(f"step,loss\n{rows}\n", encoding="utf-8")
    (tmp_path / "fine.csv").write_text("step,loss\n" + "\n".join(f"{step},1" for step in range(20)), encoding="utf-8")
    (tmp_path / "data.jsonl").write_text('{"text": "a"}\n{"text": ""}\n' * 40, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("analyze", "log.csv"), ("explain", "nonfinite-loss")),
        (("check-data", "data.jsonl"), ("explain",)),
        (("compare", "bad", "quiet"), ("compare", "bad", "quiet", "-o", "compare.html")),
        (("bundle", "inspect", "steadytrain-runs/bad/incidents/step-412"), ("bundle", "strip")),
        (("query", "bad", "SELECT count(*) FROM steps"), ("show", "bad")),
        (("query", "SELECT count(*) FROM steps"), ("runs",)),
    ],
)
def test_a_report_ends_with_one_command_that_works(
    folder: Path, words: tuple[str, ...], wanted: tuple[str, ...]
) -> None:
    if words[0] == "query":
        pytest.importorskip("duckdb")
    done = CliRunner().invoke(commands, list(words), catch_exceptions=False)
    lines = [line for line in done.output.splitlines() if line.startswith("next ")]
    assert len(lines) == 1, done.output
    assert done.output.rstrip().endswith(lines[0])
    pasted = shlex.split(lines[0].removeprefix("next").split("  #")[0])
    own = shlex.split(own_command())
    assert pasted[: len(own)] == own
    following = pasted[len(own) :]
    assert tuple(following[: len(wanted)]) == wanted
    again = CliRunner().invoke(commands, following, catch_exceptions=False)
    assert again.exit_code in (0, 1)
    assert again.output


@pytest.mark.parametrize("words", [("analyze", "fine.csv"), ("compare", "quiet", "quiet")])
def test_where_nothing_is_wrong_nothing_comes_next(folder: Path, words: tuple[str, ...]) -> None:
    if words[0] == "compare":
        builders.quiet_run(folder / "steadytrain-runs" / "same")
        words = ("compare", "quiet", "same")
    done = CliRunner().invoke(commands, list(words), catch_exceptions=False)
    assert "next " not in done.output


def test_json_has_no_command_after_it(folder: Path) -> None:
    for words in (("analyze", "log.csv"), ("check-data", "data.jsonl"), ("compare", "bad", "quiet")):
        done = CliRunner().invoke(commands, [*words, "--json"], catch_exceptions=False)
        assert "next " not in done.stdout.splitlines()[-1]


def test_the_trials_are_one_document_too(tmp_path: Path) -> None:
    bundle = builders.write_bundle(tmp_path / "step-412")
    for arguments, incident in ([], None), ([str(bundle)], str(bundle)):
        result = CliRunner().invoke(commands, ["trial", *arguments, "--json"], catch_exceptions=False)
        document = json.loads(result.stdout)
        assert (result.exit_code, document["schema"]) == (0, "steadytrain.trial-list/1")
        assert document["incident"] == incident
        assert {"trial", "summary", "applies", "why_not"} == set(document["trials"][0])
        assert all(one["applies"] is (one["why_not"] is None) for one in document["trials"] if incident)
