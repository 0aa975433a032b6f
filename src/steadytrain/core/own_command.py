"""How to call this command line again: so that a printed command works when it is pasted.

Documents and pages hold commands as ``steadytrain ...``: they may be read on another machine. What is printed names the
interpreter that prints it, unless ``steadytrain`` on the PATH is the command of this environment.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys

from steadytrain.core.own_errors import own

NAME = "steadytrain"
_SHEBANG_BYTES = 512
_QUOTED = re.compile(rf"`{NAME} (?=[a-z@-])")


def own_command(*, executable: str | None = None, path: str | None = None) -> str:
    """``steadytrain``, or ``PYTHON -m steadytrain`` if that name would call nothing or another environment's command.

    ``executable`` and ``path`` are those of this process by default.
    """
    executable = executable or sys.executable
    found = shutil.which(NAME, path=path)
    if not executable or (found is not None and _is_of(found, executable)):
        return NAME
    return f"{shlex.quote(executable)} -m {NAME}"


def pasteable(line: str) -> str:
    """A command line that begins with ``steadytrain``, as it works here."""
    return f"{own_command()}{line[len(NAME) :]}" if line.split(" ", 1)[0] == NAME else line


def with_pasteable(text: str) -> str:
    """``text`` with each command in backticks as it works here."""
    return _QUOTED.sub(lambda _: f"`{own_command()} ", text)


def _is_of(script: str, executable: str) -> bool:
    """Whether a command on the PATH is started by this interpreter. Links are not followed: an environment's
    interpreter is one.
    """
    if os.path.dirname(os.path.abspath(script)) == os.path.dirname(os.path.abspath(executable)):
        return True
    try:
        with open(script, "rb") as file:
            first = file.read(_SHEBANG_BYTES).splitlines()[:1]
    except own(OSError):
        return False
    return bool(first) and first[0].startswith(b"#!") and first[0][2:].strip() == os.fsencode(executable)
