"""Python processes that begin with torch and us in memory: what most tests launch instead of a fresh interpreter.

Importing torch and, with the first optimizer, its compiler takes four seconds of a processor, and what a command of
ours imports half a second; the scripts of the tests take a tenth of one. A server (``serving``) imports all that once
for each test process and forks. :func:`client` is the path of a small program (``client.py``) that takes the arguments
of an interpreter and has the server run them: with its working directory, environment, cores, open files, exit status
and signals. It stands in ``sys.executable`` of such a process too, so what a command launches in turn is warm as well.

What is about the interpreter itself runs in a fresh one: ``-c`` and other options, programs that lie in installed
packages, another number of threads, other variables that Python or torch read when they are imported. So do all tests
with STEADYTRAIN_COLD_TESTS=1, as ``make test-all`` sets it.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

COLD = "STEADYTRAIN_COLD_TESTS"
READY_S_MAX = 60.0


POSSIBLE = sys.platform.startswith("linux")


def python() -> str:
    """The interpreter to launch; a fresh one where the warm ones are not wanted, or cannot be."""
    return client() if POSSIBLE and not os.environ.get(COLD) else sys.executable


def sync(file: Any) -> None:
    """In the place of ``os.fsync``: no test takes the power away, and a disk takes milliseconds for each file."""
    os.fstat(file)


@cache
def client() -> str:
    """The path of the program that stands for an interpreter; its server runs from now on."""
    folder = Path(tempfile.mkdtemp(prefix="steadytrain-warm-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    program = folder / "python"
    source = (Path(__file__).parent / "client.py").read_text(encoding="utf-8")
    source = source.replace(
        'PYTHON, SERVER = "", ""', f"PYTHON, SERVER = {sys.executable!r}, {str(folder / 'server')!r}"
    )
    program.write_text(f"#!{sys.executable} -IS\n{source}", encoding="utf-8")
    program.chmod(0o755)
    own = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).parent / "server.py"), str(folder / "server"), str(program)],
        stdin=subprocess.PIPE,  # its end is the server's
        stdout=subprocess.PIPE,
        env=own,
        text=True,
    )
    assert server.stdout is not None
    if server.stdout.readline() != "ready\n":
        raise RuntimeError(f"the server of warm processes ended with {server.wait(READY_S_MAX)}")
    atexit.register(_end, server)
    return str(program)


def _end(server: subprocess.Popen[str]) -> None:
    assert server.stdin is not None
    server.stdin.close()
    server.wait(READY_S_MAX)
