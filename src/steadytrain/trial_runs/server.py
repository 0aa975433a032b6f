"""The process from which trials are forked. It has imported torch and started no thread.

Run as ``python -m steadytrain.trial_runs.server SOCKET``. Each connection requests one launch of the recorded script
(``stage.py``) and gets its own process. The server ends when its standard input closes, that is, with the pool.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress

from steadytrain.core.torch_private import load_compiler
from steadytrain.replay.child_processes import die_with_parent
from steadytrain.trial_runs.socket_messages import Line
from steadytrain.trial_runs.stage import serve

WAITING_MAX = 64
REQUEST_S_MAX = 30.0
LOOK_S = 1.0


def main(path: str) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    early = _preload()
    listener.listen(WAITING_MAX)
    sys.stdout.write(f"ready {json.dumps(early)}\n")
    sys.stdout.flush()
    children: set[int] = set()
    while True:
        ready = select.select([sys.stdin, listener], [], [], LOOK_S)[0]
        for child in list(children):
            if os.waitpid(child, os.WNOHANG)[0]:
                children.discard(child)
        if sys.stdin in ready and not os.read(sys.stdin.fileno(), 1):
            break
        if listener in ready:
            connection, _ = listener.accept()
            child = os.fork()
            if child == 0:
                listener.close()
                _become_stage(connection)
            connection.close()
            children.add(child)
    for child in children:
        with suppress(OSError):
            os.killpg(child, signal.SIGKILL)
    return 0


def _preload() -> list[str]:
    """Imports everything that launches need, so that forks have it. None of it starts a thread.

    Returns the kinds of changes that need their own launch.
    """
    import numpy.random
    import torch

    import steadytrain.capture.step.watcher
    import steadytrain.replay.from_script
    import steadytrain.trial_runs.runner
    from steadytrain.trial_runs.changes import change_kinds

    load_compiler()  # half a script's start-up, and the first optimizer imports it anyway
    early = [kind for kind, cls in change_kinds().items() if cls.is_early]
    del numpy, torch, steadytrain
    gc.collect()
    gc.freeze()  # exempts the loaded objects from later garbage collection
    return early


def _become_stage(connection: socket.socket) -> None:
    os.setsid()  # so that all its children can be killed together
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    line = Line(connection)
    line.send({"group": os.getpid()})
    asked = line.receive(REQUEST_S_MAX)
    if asked is None:
        os._exit(1)
    serve(line, asked)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
