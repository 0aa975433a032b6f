"""How to install what a part of steadytrain needs beside it. steadytrain is on no package index: its bare name would
fail, or install something else, so the packages of an extra are named.
"""

from __future__ import annotations

import re
import shlex
from importlib.metadata import PackageNotFoundError, requires

from steadytrain.core.own_command import NAME

_OF_EXTRA = re.compile(r"""^([^;]+?)\s*;.*\bextra\s*==\s*["']([\w.-]+)["']""")
_REQUIREMENT = re.compile(rf"{NAME}\[([\w.-]+)\]")


def pip_install(requirement: str) -> str:
    """The command that installs ``requirement``, as pip names it; for ``steadytrain[query]`` the packages of that
    extra."""
    own = _REQUIREMENT.fullmatch(requirement)
    return install(own[1]) if own else shlex.join(["pip", "install", requirement])


def install(extra: str) -> str:
    """The command that installs the packages of an extra: ``pip install 'duckdb>=1.2' 'pyarrow>=17'``."""
    try:
        known = requires(NAME) or []
    except PackageNotFoundError:
        known = []
    found = [match[1].strip() for one in known if (match := _OF_EXTRA.match(one)) and match[2] == extra]
    return shlex.join(["pip", "install", *(found or [f"CLONE[{extra}]"])])
