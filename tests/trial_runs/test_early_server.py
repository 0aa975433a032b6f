"""The process that trials come from starts beside the survey, and ends with the diagnosis."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from steadytrain.core.errors import UsageError
from steadytrain.trial_runs.server_process import ServerProcess


def test_a_server_that_was_closed_before_it_started_does_not_start(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path)
    server.close()
    with pytest.raises(UsageError, match="ended"):
        server.early_kinds()
    assert server._process is None


def test_forks_have_the_compiler_and_no_thread() -> None:
    """The first optimizer of a script imports it: two seconds that no launch pays again."""
    code = (
        "import os, sys; from steadytrain.trial_runs.server import _preload; _preload(); import threading; "
        "print('torch._dynamo' in sys.modules, threading.active_count())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["True", "1"]
