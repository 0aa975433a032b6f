"""Scripts run as subprocesses, bare and under ``steadytrain run``, so that a test can compare the two."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import warm
from steadytrain.storage.run_folder import Run, open_run

WAIT_S_MAX = 90.0
TESTS = Path(__file__).parent


@dataclass(frozen=True)
class Ended:
    """How a process ended; ``err`` is split into the script's own text and our lines."""

    status: int
    out: str
    err: str
    told: str

    @property
    def warned(self) -> bool:
        return "warning:" in self.told


class Started:
    """A process that runs; :meth:`end` waits for it, with a limit."""

    def __init__(
        self, command: Sequence[str], folder: Path, *, environment: Mapping[str, str] = {}, text: str = ""
    ) -> None:
        pythonpath = os.pathsep.join(filter(None, [{**os.environ, **environment}.get("PYTHONPATH"), str(TESTS)]))
        threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self._text = text
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **threads, **environment, "PYTHONPATH": pythonpath},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def end(self) -> Ended:
        try:
            out, err = self.process.communicate(self._text, timeout=WAIT_S_MAX)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            out, err = self.process.communicate()
            raise AssertionError(f"no end within {WAIT_S_MAX:.0f} s\n{out}\n{err}") from None
        own, told = _part(err)
        return Ended(self.process.returncode, out, own, told)


def write(folder: Path, source: str, name: str = "script.py") -> str:
    """Write a script into ``folder``; returns its name."""
    (folder / name).write_text(textwrap.dedent(source), encoding="utf-8")
    return name


def bare(*arguments: str) -> list[str]:
    return [warm.python(), *arguments]


def watched(*arguments: str, policy: str = "stop") -> list[str]:
    """The command line of a watched run; its run folder is ``runs/run``."""
    options = ["--policy", policy, "--runs-dir", "runs", "--name", "run"]
    return [warm.python(), "-m", "steadytrain", "run", *options, *arguments]


def recorded(folder: Path) -> Run:
    return open_run(folder / "runs" / "run")


def _part(err: str) -> tuple[str, str]:
    """What a script said itself, and what we said: a message of ours and its indented lines."""
    own, told, ours = [], [], False
    for line in err.splitlines(keepends=True):
        ours = line.startswith("steadytrain: ") or (ours and re.match("  [a-z]", line) is not None)
        (told if ours else own).append(line)
    return "".join(own), "".join(told)
