"""``show`` loads what it shows, and no more: most of its time is imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import builders

SHOW = """
import sys
from steadytrain.cli.main import commands
commands.main(["show", sys.argv[1]], standalone_mode=False)
print("LOADED", *sys.modules)
"""
UNNEEDED = {"importlib.metadata", "steadytrain.diagnosis.proof", "steadytrain.experiments.trial", "torch"}


def loaded(run: Path) -> set[str]:
    """The modules that are loaded once ``show`` has shown the run."""
    shown = subprocess.run([sys.executable, "-c", SHOW, str(run)], capture_output=True, text=True, check=True).stdout
    return set(shown.rpartition("LOADED ")[2].split())


def test_show_loads_only_what_it_shows(tmp_path: Path) -> None:
    for run, detectors_max in ((builders.quiet_run(tmp_path / "quiet"), 0), (builders.bad_run(tmp_path / "bad"), 3)):
        modules = loaded(run)
        assert not modules & UNNEEDED
        assert len([name for name in modules if name.startswith("steadytrain.detectors.")]) <= detectors_max
