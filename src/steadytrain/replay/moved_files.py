"""A recorded command whose files moved, for example to another work tree of the same repository. Torch-free."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.storage.bundle import Bundle

NOT_MOVED = "-"


@dataclass(frozen=True)
class Moved:
    """Maps paths below ``old`` to ``new``. Both are None if nothing moved."""

    old: str | None
    new: str | None

    @staticmethod
    def parse(text: str) -> Moved:
        """Parses ``OLD=NEW``, or ``-`` for nothing moved.

        Raises:
            UsageError: the text is neither, or NEW is no folder.
        """
        if text == NOT_MOVED:
            return Moved(None, None)
        old, separator, new = text.partition("=")
        if not separator or not old or not new:
            raise UsageError(f"{text!r}: must be OLD=NEW, the recorded folder and its present place")
        if not Path(new).is_dir():
            raise UsageError(f"{new}: no such folder")
        return Moved(os.path.abspath(old), os.path.abspath(new))

    def __str__(self) -> str:
        return NOT_MOVED if self.old is None else f"{self.old}={self.new}"

    @property
    def pair(self) -> tuple[str, str] | None:
        return None if self.old is None or self.new is None else (self.old, self.new)

    def path(self, path: str) -> str:
        """The present path of ``path``. A path outside ``old`` stays."""
        if self.old is None or self.new is None:
            return path
        if path == self.old:
            return self.new
        inside = path.startswith(self.old + os.sep)
        return self.new + path[len(self.old) :] if inside else path

    def put_on_path(self) -> None:
        """Makes imports from the old folder (an editable install, for example) come from the new one."""
        moved = [self.path(entry) for entry in sys.path if entry and self.path(entry) != entry]
        sys.path[1:1] = moved


def moved_bundle(bundle: Bundle, moved: Moved) -> Bundle:
    """The bundle with the present paths of its script, folder and arguments."""
    if moved.pair is None:
        return bundle
    return replace(bundle, environment=moved_environment(bundle.environment, moved))


def moved_environment(recorded: Mapping[str, Any], moved: Moved) -> dict[str, Any]:
    """The environment of a bundle or run with the present paths of its command."""
    environment: dict[str, Any] = dict(recorded)
    for name in ("script", "cwd"):
        if isinstance(environment.get(name), str):
            environment[name] = moved.path(environment[name])
    environment["argv"] = [moved.path(str(argument)) for argument in environment.get("argv") or ()]
    return environment
