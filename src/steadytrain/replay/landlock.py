"""Forbids this process and its children, through the kernel, to write outside some folders (Linux 5.13 and newer).

Landlock needs no privilege and cannot be undone. It also covers C, C++ and Rust libraries and child programs, which
Python patches do not reach. Reading stays allowed.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""System call numbers, the same on every architecture that Python supports."""

VERSION_FLAG = 1
SWITCH = "STEADYTRAIN_LANDLOCK"
"""Environment variable for tests: "off" makes this kernel one without Landlock."""

RULE_PATH_BENEATH = 1
SET_NO_NEW_PRIVILEGES = 38

WRITING = sum(1 << bit for bit in (1, *range(4, 13)))
"""Write to a file, remove a file or folder, create a file, folder, device, socket, pipe or link."""

RENAME_ACROSS = 1 << 13
"""Renaming between folders, from version 2 of the interface on."""

TRUNCATE = 1 << 14
"""From version 3 on."""


class _Ruleset(ctypes.Structure):
    _fields_ = (("handled_access_fs", ctypes.c_uint64),)


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def forbid_writing(allowed: Iterable[Path]) -> bool:
    """Forbids this thread and everything that it starts later to write outside ``allowed``.

    Returns whether the kernel enforces it. If not, nothing has changed.
    """
    version = kernel_version()
    if version < 1:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    access = WRITING | (RENAME_ACROSS if version >= 2 else 0) | (TRUNCATE if version >= 3 else 0)
    rules = _Ruleset(access)
    ruleset = libc.syscall(CREATE_RULESET, ctypes.byref(rules), ctypes.c_size_t(ctypes.sizeof(rules)), 0)
    if ruleset < 0:
        return False
    try:
        for folder in allowed:
            with suppress(OSError):  # a folder that does not exist needs no rule
                _allow(libc, ruleset, folder, access)
        libc.prctl(SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        return bool(libc.syscall(RESTRICT_SELF, ruleset, 0) == 0)
    finally:
        os.close(ruleset)


def kernel_version() -> int:
    """The version of the Landlock interface of this kernel, below 1 if there is none or ``SWITCH`` says off."""
    if not sys.platform.startswith("linux") or os.environ.get(SWITCH) == "off":
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    return int(libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), VERSION_FLAG))


def _allow(libc: ctypes.CDLL, ruleset: int, folder: Path, access: int) -> None:
    descriptor = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = _PathBeneath(access, descriptor)
        libc.syscall(ADD_RULE, ruleset, RULE_PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(descriptor)
