"""What a shell offers after a <Tab>: it is fast, writes nothing, and offers what is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

import builders
from steadytrain.cli.main import COMPLETION_VARIABLE, commands


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two runs, in a shell that asks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(COMPLETION_VARIABLE, "bash_complete")
    builders.bad_run(tmp_path / "steadytrain-runs" / "bad")
    builders.quiet_run(tmp_path / "elsewhere" / "other")
    return tmp_path


def offered(*words: str) -> list[str]:
    """What is offered in place of the last word."""
    found = ShellComplete(commands, {}, "steadytrain", COMPLETION_VARIABLE).get_completions(list(words[:-1]), words[-1])
    return [item.value if item.type == "plain" else f"<{item.type}>" for item in found]


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("dia",), ["diagnose"]),
        (("diagnose", ""), ["@last", "bad"]),
        (("show", "bad/"), ["bad/step-412"]),
        (("show", "@last/"), ["@last/step-412"]),
        (("show", "--runs-dir", "elsewhere", ""), ["@last", "other"]),
        (("show", "train"), ["<file>"]),
        (("locate", "--runs-dir", "not-there", ""), ["<file>"]),
        (("run", "--level", "l"), ["light"]),
        (("run", "--policy", "s"), ["skip", "steady", "stop"]),
        (("policy", "show", "ob"), ["observe"]),
        (("bundle", "inspect", "b"), ["bad"]),
        (("explain", "loss-spik"), ["loss-spike"]),
        (("diagnose", "--symptom", "loss-spik"), ["loss-spike"]),
        (("trial", "bad", "float32-i"), ["float32-island"]),
        (("verify", "bad", "--with", "safe-op"), ["safe-operation"]),
        (("run", "--with", "math-a"), ["math-attention"]),
        (("run", "--with", "roll"), ["<file>"]),
        (("completion", ""), ["bash", "fish", "zsh"]),
    ],
)
def test_it_offers_what_is_there(folder: Path, words: tuple[str, ...], wanted: list[str]) -> None:
    assert sorted(offered(*words)) == sorted(wanted)


def test_options_are_offered(folder: Path) -> None:
    assert {"--budget", "--json", "--runs-dir"} <= set(offered("diagnose", "--"))


def test_nothing_is_written_and_no_torch_is_loaded(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    code = (
        "import os, sys\n"
        f"os.environ.update({COMPLETION_VARIABLE}='bash_complete', COMP_CWORD='2')\n"
        "os.environ['COMP_WORDS'] = 'steadytrain diagnose '\n"
        "from steadytrain.cli.main import commands\n"
        "try: commands.main(prog_name='steadytrain', standalone_mode=False)\n"
        "except SystemExit: pass\n"
        "print('torch' in sys.modules, 'steadytrain.detectors' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["plain,@last", "plain,bad", "False False"]
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str) -> None:
    done = CliRunner().invoke(commands, ["completion", shell])
    assert done.exit_code == 0
    assert f"{COMPLETION_VARIABLE}={shell}_complete" in done.stdout
