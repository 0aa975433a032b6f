"""Scripts and commands run in processes of their own: bare, under ``steadytrain run``, and our other commands.

Errors of our own are raised in all of them (see ``conftest.py``), but where a test that plants one switches that off.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import warm
from steadytrain.storage.run_folder import Run, open_run

FAILURE = re.compile(r"failed \(|training goes on|cannot be written|is not watched|is left out")
WAIT_S_MAX = 400.0
"""After so long a process is taken for one that hangs. Nothing is proved by it, so it may be long."""


@dataclass(frozen=True)
class Ended:
    """How a process ended. ``run_dir`` need not exist: a script that trains nothing leaves none."""

    status: int
    out: str
    err: str
    run_dir: Path

    @property
    def run(self) -> Run:
        return open_run(self.run_dir)

    @property
    def own(self) -> str:
        """What the script said itself on standard error."""
        return self._parts()[0]

    @property
    def told(self) -> str:
        """What we said: our messages and their indented lines."""
        return self._parts()[1]

    @property
    def warnings(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.startswith("steadytrain: warning:")]

    @property
    def failures(self) -> list[str]:
        """Of the warnings those of what we could not do, and not of what goes wrong in the training."""
        return [line for line in self.warnings if FAILURE.search(line)]

    def _parts(self) -> tuple[str, str]:
        own, told, ours = [], [], False
        for line in self.err.splitlines(keepends=True):
            ours = line.startswith("steadytrain: ") or (ours and re.match("  [a-z]", line) is not None)
            (told if ours else own).append(line)
        return "".join(own), "".join(told)


class Started:
    """A process that runs; :meth:`end` waits for it. A ``PYTHONPATH`` in ``environment`` is put before that of here."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        *,
        environment: Mapping[str, str] = {},
        text: str = "",
        runs_dir: Path | None = None,
        **how: Any,
    ) -> None:
        paths = filter(None, [environment.get("PYTHONPATH"), os.environ.get("PYTHONPATH")])
        self._text = text
        self._run_dir = (runs_dir or folder / "runs") / "run"
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **how,
        )

    def end(self) -> Ended:
        try:
            out, err = self.process.communicate(self._text, timeout=WAIT_S_MAX)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            out, err = self.process.communicate()
            raise AssertionError(f"no end within {WAIT_S_MAX:.0f} s\n{out}\n{err}") from None
        return Ended(self.process.returncode, out, err, self._run_dir)


def write(folder: Path, source: str, name: str = "script.py") -> str:
    """Write a script into ``folder``; returns its name."""
    return write_script(folder, source, name).name


def write_script(folder: Path, source: str, name: str = "train.py") -> Path:
    """Write a script into ``folder``; returns its path."""
    script = folder / name
    script.write_text(textwrap.dedent(source), encoding="utf-8")
    return script


def bare(*arguments: object) -> list[str]:
    return [warm.python(), *map(str, arguments)]


def command(*arguments: object) -> list[str]:
    """The line of a command of ours."""
    return bare("-m", "steadytrain", *arguments)


def watched(*arguments: str, policy: str = "stop") -> list[str]:
    """The command line of a watched run; its run folder is ``runs/run``."""
    return command("run", "--policy", policy, "--runs-dir", "runs", "--name", "run", *arguments)


def recorded(folder: Path) -> Run:
    return open_run(folder / "runs" / "run")


def call(*arguments: object, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run a command of ours to its end."""
    return finished(command(*arguments), **how)


Entered = Callable[..., tuple[object, str, str]]
"""What the fixture ``entered`` is: exit status, standard output and standard error of a command in this process."""


def finished(
    line: Sequence[str], *, folder: Path | None = None, environment: Mapping[str, str] = {}
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(
        line,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=WAIT_S_MAX,
        check=False,
    )


def run_script(
    folder: Path,
    script: str | Path,
    *options: str,
    arguments: tuple[str, ...] = (),
    environment: Mapping[str, str] = {},
    runs_dir: Path | None = None,
    interpreter: str | None = None,
    fails: bool = False,
    **how: Any,
) -> Ended:
    """Run a script (its path, or its source) under watch, in ``folder``; the run is called ``run``.

    Nothing of ours may fail meanwhile, unless it ``fails``; an error in a thread of ours never may.
    """
    path = script if isinstance(script, Path) else write_script(folder, script)
    runs_dir = runs_dir or folder / "runs"
    line = command("run", "--runs-dir", runs_dir, "--name", "run", *options, path, *arguments)
    if interpreter is not None:
        line[0] = interpreter
    ended = Started(line, folder, environment=environment, runs_dir=runs_dir, **how).end()
    assert "Exception in thread" not in ended.err, ended.err
    assert fails or not ended.failures, ended.err
    return ended
