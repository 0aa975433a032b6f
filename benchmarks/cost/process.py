"""One arm as a process of its own: it computes a step when it is asked, and says how long that took.

Orders come on stdin and answers go to stdout, one line of JSON each: ``step`` (time and loss), ``count`` (a step with
its host reads), ``end`` (memory and what the arm says of itself).
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TextIO

import torch

from cost.arms import ARMS, FROM_THE_START, Attached, Subject
from cost.case import Case
from cost.gpt import GPT
from cost.host_reads import counting

MAX_STEPS = 10**9
LEARNING_RATE = 1e-4
CLIP_NORM = 1.0
ERROR_LENGTH_MAX = 200


class Turns:
    """Batches, one whenever the referee asks for a step; the step ends when the next batch is asked for.

    ``loss`` is set by whoever trains. Batches are drawn from a generator of their own.
    """

    def __init__(self, case: Case, answers: TextIO) -> None:
        self.loss = float("nan")
        self._case = case
        self._answers = answers
        self._random = torch.Generator().manual_seed(1)

    def __len__(self) -> int:
        return MAX_STEPS  # a loop that knows the length does not fetch ahead

    def __iter__(self) -> Iterator[torch.Tensor]:
        for line in sys.stdin:
            order = json.loads(line)["do"]
            if order == "end":
                return
            shape = (self._case.rows, self._case.context + 1)
            # Some tokens are far more frequent than others: a model learns that, so no detector reports a flat loss.
            skewed = self._case.vocab * torch.rand(shape, generator=self._random, dtype=torch.float64) ** 3
            tokens = skewed.long().to(self._case.device)
            if order == "count":
                self._settle()
                with counting() as found:
                    yield tokens
                self.say(reads=found.reads, waits=found.waits, loss=self.loss)
                continue
            self._settle()
            started, processor = time.perf_counter(), time.process_time()
            yield tokens
            self._settle()
            seconds, processor = time.perf_counter() - started, time.process_time() - processor
            self.say(seconds=seconds, processor_s=processor, loss=self.loss)

    def say(self, **facts: object) -> None:
        print(json.dumps(facts), file=self._answers, flush=True)

    def _settle(self) -> None:
        if self._case.device != "cpu":
            torch.cuda.synchronize()


def be_an_arm(name: str, case: Case) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what tools print goes to stderr
    torch.manual_seed(0)
    dtype = getattr(torch, case.dtype)
    model: Any = GPT(case).to(case.device, dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    turns = Turns(case, answers)
    with ExitStack() as undo, _telling(turns):
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        attached = {**ARMS, FROM_THE_START.name: FROM_THE_START}[name].put_on(
            Subject(case, model, optimizer, folder, undo)
        )
        run = torch.compile(model) if case.compiled else model
        state_bytes = sum(p.numel() * p.element_size() for p in model.parameters()) * 3  # weights and two moments
        turns.say(
            torch=torch.__version__,
            threads=torch.get_num_threads(),
            parameters=sum(parameter.numel() for parameter in model.parameters()),
            tensors=len(list(model.parameters())),
            state_bytes=state_bytes,
        )
        if attached.loop is not None:
            attached.loop(turns)
        else:
            _loop(turns, attached, run, attached.optimizer or optimizer, case)
        turns.say(peak_bytes=_peak_bytes(case), mapped_bytes=_mapped_bytes(), **attached.facts())


@contextmanager
def _telling(turns: Turns) -> Iterator[None]:
    """Say what went wrong to the referee, in a line."""
    try:
        yield
    except Exception as error:
        turns.say(error=" ".join(f"{type(error).__name__}: {error}".split())[:ERROR_LENGTH_MAX])
        raise


def _loop(turns: Turns, attached: Attached, model: Any, optimizer: Any, case: Case) -> None:
    for tokens in turns:
        for _ in range(case.forwards - 1):
            model(tokens[:, :-1], tokens[:, 1:])
        loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        attached.after_backward(loss)
        if case.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        attached.before_step(loss)
        optimizer.step()
        attached.after_step(loss)
        optimizer.zero_grad()
        turns.loss = float(loss.item())


def _peak_bytes(case: Case) -> int:
    if case.device != "cpu":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _mapped_bytes() -> int:
    """Resident pages of files, mostly code of libraries that has run. It does not grow with the model."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next((1024 * int(line.split()[1]) for line in status if line.startswith("RssFile:")), 0)
