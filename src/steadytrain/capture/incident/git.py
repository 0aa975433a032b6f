"""Reads a run's git commit and uncommitted changes. This file does not import torch: it runs before the script."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from steadytrain.core.own_errors import own
from steadytrain.storage.redaction import redact_text

GIT_WAIT_S = 3.0
DIFF_CHARACTERS_MAX = 1 << 20


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit, branch and whether there are changes; None outside a work tree or without git."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    status = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit.strip(), "dirty": bool(status and status.strip())}


def git_diff(folder: Path) -> str | None:
    """The uncommitted changes, redacted and cut at ``DIFF_CHARACTERS_MAX``."""
    diff = _git(folder, "diff", "HEAD")
    return redact_text(diff[:DIFF_CHARACTERS_MAX]) if diff else None


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            timeout=GIT_WAIT_S,
            stdin=subprocess.DEVNULL,
            check=False,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except own(OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None
