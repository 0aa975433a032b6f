"""Refuses what a launched script does outside its scratch folder, by Python's audit events.

The sandbox replaces Python's file functions; a script that took a function earlier, or calls the C module directly,
passes it. Python still reports each such call to the audit hook, before the call. The hook refuses writing elsewhere,
connections to other hosts, signals and connections to processes that the script did not start, and programs that submit
jobs or upload.

On a kernel without Landlock, programs and C functions could write anywhere: there the hook also refuses programs that
are not known to only read, and the C library's writing functions through ``ctypes``. Landlock leaves modes, owners
and times of files open, so functions and programs that change these are refused everywhere.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from steadytrain.replay.offline import is_local
from steadytrain.replay.own_processes import OwnProcesses
from steadytrain.replay.programs import names_in, refusal

WRITING_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
REFUSED = "a relaunched script writes only to its scratch folder (steadytrain)"
NO_NETWORK = "a relaunched script has no network (steadytrain: --allow-network)"
NO_SIGNAL = "a relaunched script signals only processes that it started (steadytrain)"
NO_FUNCTION = "a relaunched script may not call {}() through ctypes (steadytrain)"

WRITING_FUNCTIONS = names_in(
    """
    open open64 openat openat64 creat creat64 fopen fopen64 freopen rename renameat renameat2 remove unlink
    unlinkat truncate truncate64 link linkat symlink symlinkat mkdir mkdirat rmdir chmod fchmodat chown utime
    utimes utimensat system popen execl execle execlp execv execve execvp execvpe fexecve posix_spawn
    posix_spawnp syscall connect sendto sendmsg kill killpg
    """
)
"""Of the C library."""

UNSEEN_FUNCTIONS = names_in(
    """
    chmod lchmod fchmod fchmodat chown lchown fchown fchownat utime utimes lutimes futimes futimesat futimens
    utimensat setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr kill killpg connect sendto
    sendmsg syscall
    """
)
"""Of the C library: what Landlock does not forbid."""

PATHS: Mapping[str, tuple[tuple[int, int | None, bool], ...]] = {
    "os.truncate": ((0, None, True),),
    "os.remove": ((0, 1, False),),
    "os.rmdir": ((0, 1, False),),
    "os.mkdir": ((0, 2, False),),
    "os.rename": ((0, 2, False), (1, 3, False)),
    "os.link": ((1, 3, False),),
    "os.symlink": ((1, 2, False),),
    "os.utime": ((0, 3, True),),
    "os.chmod": ((0, 2, True),),
    "os.chown": ((0, 3, True),),
    "os.setxattr": ((0, None, True),),
    "os.removexattr": ((0, None, True),),
    "sqlite3.connect": ((0, None, True),),
}
"""By event, the paths that it changes: place of the path, place of its folder's descriptor, whether links are
followed."""

Resolve = Callable[..., str]


class AuditRules:
    """The hook. ``resolve`` gives the real path of a path and a folder's descriptor.

    Args:
        writable: resolved folders that the script may write, each with a separator at its end.
        has_kernel_rule: Landlock forbids writing elsewhere, also to programs and C libraries.
        has_network: connections to other hosts, and to servers that the script did not start, are allowed.
        own: the processes that the script started.
    """

    def __init__(
        self,
        writable: tuple[str, ...],
        resolve: Resolve,
        *,
        has_kernel_rule: bool,
        has_network: bool,
        own: OwnProcesses,
    ) -> None:
        self._own = own
        self._writable = writable
        self._resolve = resolve
        self._has_kernel_rule = has_kernel_rule
        self._rules: dict[str, Callable[[tuple[Any, ...]], None]] = {"open": self._open}
        self._rules |= {event: self._paths(event) for event in PATHS}
        self._rules |= dict.fromkeys(("os.kill", "os.killpg"), self._signal)
        self._rules["resource.prlimit"] = own.limit
        self._rules |= {
            "subprocess.Popen": lambda args: self._program(args[1], args[3]),
            "os.system": lambda args: self._program([b"sh", b"-c", args[0]], None),
            "os.exec": lambda args: self._program(args[1], args[2]),
            "os.posix_spawn": lambda args: self._program(args[1], args[2]),
        }
        if not has_network:
            self._rules |= dict.fromkeys(("socket.connect", "socket.sendto", "socket.sendmsg"), self._connection)
        self._refused = UNSEEN_FUNCTIONS if has_kernel_rule else UNSEEN_FUNCTIONS | WRITING_FUNCTIONS
        self._rules["ctypes.dlsym"] = self._function

    def install(self) -> None:
        """Installs the hook for the rest of this process; Python has no way to remove one."""
        sys.addaudithook(self.check)

    def check(self, event: str, args: tuple[Any, ...]) -> None:
        """Raises an ``OSError`` if ``event`` is refused."""
        rule = self._rules.get(event)
        if rule is not None:
            rule(args)

    def allows(self, path: Any, folder: int | None = None, *, follow: bool = True) -> bool:
        """Whether the script may change what lies at ``path``, by its real name."""
        with suppress(OSError, ValueError):
            return self._resolve(path, folder, follow=follow).startswith(self._writable)
        return True  # the call itself will fail

    def _allows_descriptor(self, descriptor: int) -> bool:
        """Whether the script may change mode, owner and times of a file that it may have opened only to read."""
        with suppress(OSError):
            if os.fstat(descriptor).st_nlink:
                return self.allows(f"/proc/self/fd/{descriptor}")
        return True

    def _open(self, args: tuple[Any, ...]) -> None:
        path, _, flags = args
        if not isinstance(flags, int) or not flags & WRITING_FLAGS or isinstance(path, int):
            return
        if not self.allows(path):
            raise PermissionError(errno.EACCES, REFUSED, path)
        self._own.refuse_others(path)

    def _paths(self, event: str) -> Callable[[tuple[Any, ...]], None]:
        def rule(args: tuple[Any, ...]) -> None:
            for place, folder_place, follow in PATHS[event]:
                path = args[place]
                folder = args[folder_place] if folder_place is not None else None
                if isinstance(path, int):
                    if event != "os.truncate" and not self._allows_descriptor(path):
                        raise PermissionError(errno.EACCES, REFUSED)
                    continue
                if path in ("", b"", ":memory:") or str(path).startswith("file:"):
                    continue
                if not self.allows(path, folder if isinstance(folder, int) and folder >= 0 else None, follow=follow):
                    raise PermissionError(errno.EACCES, REFUSED, path)

        return rule

    def _program(self, words: Any, environment: Any) -> None:
        why = refusal(words, environment, can_write=not self._has_kernel_rule, own=self._writable)
        if why is not None:
            raise PermissionError(errno.EPERM, why)

    def _function(self, args: tuple[Any, ...]) -> None:
        name = args[1].decode() if isinstance(args[1], bytes) else args[1]
        if name in self._refused:
            raise PermissionError(errno.EPERM, NO_FUNCTION.format(name))

    def _signal(self, args: tuple[Any, ...]) -> None:
        process, number = int(args[0]), args[1]
        if number == 0 or process == 0:
            return
        if process == -1 or not self._own.has(abs(process)):
            raise ProcessLookupError(errno.ESRCH, NO_SIGNAL)

    def _connection(self, args: tuple[Any, ...]) -> None:
        if not is_local(args[1] if len(args) > 1 else None):
            raise OSError(errno.ENETUNREACH, NO_NETWORK)
        self._own.connection(args)
