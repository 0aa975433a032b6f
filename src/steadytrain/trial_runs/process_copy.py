"""Forks a copy of this process that measures one number and ends."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from dataclasses import dataclass
from typing import NoReturn

import torch

from steadytrain.core.json_values import number_from_json, number_to_json
from steadytrain.trial_runs.thread_pools import release

COPY_S_MAX = 300.0


@dataclass(frozen=True)
class Measured:
    """The answer of a copy: its number, None if it gave none or took longer than ``COPY_S_MAX`` seconds."""

    number: float | None


class ProcessCopy:
    """The copy's side of the pipe."""

    def __init__(self, answer: int) -> None:
        self._answer = answer

    def answer(self, number: float | None) -> NoReturn:
        text = json.dumps(None if number is None else number_to_json(number))
        os.write(self._answer, text.encode())
        self.leave("")

    def leave(self, why: str) -> NoReturn:
        """Ends the copy without exit code."""
        if why:
            print(f"steadytrain: {why}", file=sys.stderr, flush=True)
        os._exit(0)


def measure_in_copy() -> ProcessCopy | Measured:
    """Forks. The copy gets a :class:`ProcessCopy` for its answer; the parent waits for it."""
    sys.stdout.flush()
    sys.stderr.flush()
    reads, writes = os.pipe()
    whole = torch.get_num_threads() == 1 or release()
    child = os.fork()
    if child == 0:
        if not whole:
            torch.set_num_threads(1)  # the copy lacks the threads of the pool
        os.close(reads)
        return ProcessCopy(writes)
    os.close(writes)
    text = _read_all(reads, COPY_S_MAX)
    os.close(reads)
    if text is None:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    number = json.loads(text) if text else None
    return Measured(None if number is None else number_from_json(number))


def _read_all(descriptor: int, wait_s: float) -> bytes | None:
    """Reads until the other end closes; None on timeout."""
    text = b""
    until = time.monotonic() + wait_s
    while True:
        left = until - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            return None
        part = os.read(descriptor, 4096)
        if not part:
            return text
        text += part
