"""Scripts run for real under ``python -m steadytrain run``, and small training loops watched in this process."""

from __future__ import annotations

import os
import subprocess
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import steadytrain
import warm
from steadytrain.storage.run_folder import Run, open_run

WAIT_S_MAX = 120.0
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Outcome:
    """How a watched script ended. ``run_dir`` need not exist: a script that trains nothing leaves none."""

    status: int
    out: str
    err: str
    run_dir: Path

    @property
    def run(self) -> Run:
        return open_run(self.run_dir)

    @property
    def warnings(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.startswith("steadytrain: warning:")]


def command(script: Path, *options: str, arguments: tuple[str, ...] = ()) -> list[str]:
    return [warm.python(), "-m", "steadytrain", "run", *options, str(script), *arguments]


def write_script(folder: Path, source: str, name: str = "train.py") -> Path:
    script = folder / name
    script.write_text(textwrap.dedent(source), encoding="utf-8")
    return script


def run_script(
    folder: Path,
    script: str | Path,
    *options: str,
    arguments: tuple[str, ...] = (),
    environment: Mapping[str, str] = {},
    runs_dir: Path | None = None,
    interpreter: str | None = None,
    **how: Any,
) -> Outcome:
    """Run a script (its path, or its source) under watch, in ``folder``; the run is called ``run``."""
    path = script if isinstance(script, Path) else write_script(folder, script)
    runs_dir = runs_dir or folder / "runs"
    line = command(path, "--runs-dir", str(runs_dir), "--name", "run", *options, arguments=arguments)
    done = subprocess.run(
        [interpreter or line[0], *line[1:]],
        cwd=folder,
        env={**os.environ, **ONE_THREAD, **environment},
        capture_output=True,
        text=True,
        timeout=WAIT_S_MAX,
        check=False,
        **how,
    )
    return Outcome(done.returncode, done.stdout, done.stderr, runs_dir / "run")


@contextmanager
def stopping(model: Any, optimizer: Any, runs_dir: Path, **how: Any) -> Iterator[None]:
    """Watch the loop in this block as ``run``, and see to it that it is stopped."""
    with (
        pytest.raises(steadytrain.RunStopped),
        steadytrain.watch(model, optimizer, runs_dir=runs_dir, name="run", **how),
    ):
        yield
