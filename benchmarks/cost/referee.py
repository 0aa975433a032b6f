"""Lets the arms take turns: a round is one step of every arm, in a new order each time, so that whatever else the
machine does hits all of them alike. The losses of a round must be the same but for rounding."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cost.arms import Arm
from cost.case import ORDINARY, RARE_EVERY, Case, kind_of

WARM_UP_ROUNDS = 4
LOSS_TOLERANCE = 1e-4
"""With several threads two bare processes may differ in the last bits; bit-identity is for the tests."""

END_WAIT_S = 120.0
SCRIPT = Path(__file__).parents[1] / "arm.py"

Progress = Callable[[str], None]


class ArmFailedError(Exception):
    """An arm's process ended or computes something else; the message says in a few words why."""


@dataclass
class Run:
    """What was measured of one arm. ``seconds[n]`` belongs to the round with the number ``numbers[n]``."""

    arm: Arm
    failed: str | None = None
    numbers: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    processor_s: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    reads: dict[str, int] = field(default_factory=dict)
    waits: dict[str, int] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


MEMORY_STEPS = RARE_EVERY + 1
MEMORY_AT_ONCE = 2
MEMORY_ENVIRONMENT = {
    # Every large tensor then gets pages of its own and gives them back: without this the peak of two bare runs
    # differs by 60 MB at 30 M parameters.
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "MALLOC_TRIM_THRESHOLD_": "131072",
    "MALLOC_ARENA_MAX": "1",
    "OMP_NUM_THREADS": "1",
}


class ArmProcess:
    """The process of one arm. ``order`` sends what to do, ``answer`` waits for what it says."""

    def __init__(self, arm: Arm, case: Case, environment: Mapping[str, str] | None = None) -> None:
        self.arm = arm
        self._process = subprocess.Popen(
            [sys.executable, str(SCRIPT), arm.name, case.to_json()],
            env={**os.environ, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, what: str) -> dict[str, Any]:
        self.order(what)
        return self.answer()

    def order(self, what: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": what}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise ArmFailedError(self._why()) from None

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ArmFailedError(self._why())
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise ArmFailedError(found["error"])
        return found

    def _why(self) -> str:
        return f"the process ended with status {self._process.wait(END_WAIT_S)}"

    def __enter__(self) -> ArmProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def compare(case: Case, arms: Sequence[Arm], *, rounds: int, progress: Progress) -> list[Run]:
    """Let ``arms`` take turns for ``rounds`` rounds after the warm-up, and count host reads afterwards.

    An arm that fails is listed with its reason and the others go on; the bare arm must not fail.
    """
    runs = {arm.name: Run(arm) for arm in arms}
    order = random.Random(0)
    with ExitStack() as stack:
        there = [stack.enter_context(ArmProcess(arm, case)) for arm in arms]

        def ask(process: ArmProcess, what: str | None) -> dict[str, Any] | None:
            try:
                return process.answer() if what is None else process.ask(what)
            except ArmFailedError as error:
                if process.arm.name == "bare":
                    raise
                runs[process.arm.name].failed = str(error)
                there.remove(process)
                return None

        for process in list(there):
            progress(f"{case.name}: starting {process.arm.name}")
            if (facts := ask(process, None)) is not None:
                runs[process.arm.name].facts |= facts
        for number in range(1, WARM_UP_ROUNDS + rounds + 1):
            progress(f"{case.name}: round {number} of {WARM_UP_ROUNDS + rounds}")
            losses = {}
            together = number == 1 and case.compiled  # or they would compile one after the other
            for process in there if together else ():
                process.order("step")
            for process in order.sample(there, len(there)):
                if (found := ask(process, None if together else "step")) is None:
                    continue
                run = runs[process.arm.name]
                losses[process.arm.name] = found["loss"]
                run.losses.append(found["loss"])
                if number > WARM_UP_ROUNDS:
                    run.numbers.append(number)
                    run.seconds.append(found["seconds"])
                    run.processor_s.append(found["processor_s"])
            for process in list(there):
                loss, bare = losses[process.arm.name], losses["bare"]
                if not math.isclose(loss, bare, rel_tol=LOSS_TOLERANCE):
                    runs[process.arm.name].failed = f"its loss in step {number} is {loss:.6g}, the bare one {bare:.6g}"
                    there.remove(process)
        _count_reads(case, there, runs, ask, number=WARM_UP_ROUNDS + rounds, progress=progress)
        for process in list(there):
            progress(f"{case.name}: the end of {process.arm.name}")
            if (facts := ask(process, "end")) is not None:
                runs[process.arm.name].facts |= facts
    progress("")
    return list(runs.values())


def _count_reads(
    case: Case,
    there: list[ArmProcess],
    runs: dict[str, Run],
    ask: Callable[[ArmProcess, str | None], dict[str, Any] | None],
    *,
    number: int,
    progress: Progress,
) -> None:
    """One step of every kind under a profiler, for those arms that have that kind; others only an ordinary one."""
    for at in range(number + 1, number + RARE_EVERY + 1):
        kind = kind_of(at)
        for process in list(there):
            arm, run = process.arm, runs[process.arm.name]
            has = kind == ORDINARY or (arm.rare_every if kind == "rare" else arm.look_every) is not None
            if kind in run.reads or not has:
                if at <= _last_needed(arm, number):
                    ask(process, "step")  # on to the step of the next kind
                continue
            progress(f"{case.name}: host reads of {arm.name}, {kind}")
            if (found := ask(process, "count")) is not None:
                run.reads[kind] = found["reads"]
                if found["waits"] is not None:
                    run.waits[kind] = found["waits"]


def _last_needed(arm: Arm, number: int) -> int:
    """The number of the last step that has to be reached to have seen every kind."""
    wanted = {ORDINARY} | ({"look"} if arm.look_every else set()) | ({"rare"} if arm.rare_every else set())
    first = {}
    for at in range(number + 1, number + RARE_EVERY + 1):
        first.setdefault(kind_of(at), at)
    return max(first[kind] for kind in wanted)


def measure_memory(case: Case, runs: Sequence[Run], *, progress: Progress) -> None:
    """Peak memory of each arm over a few steps, in processes of their own; into the facts of ``runs``.

    On a GPU the allocator's own peak is there already.
    """
    if case.device != "cpu":
        return
    left = [run for run in runs if run.failed is None]
    while left:
        now, left = left[:MEMORY_AT_ONCE], left[MEMORY_AT_ONCE:]
        with ExitStack() as stack:
            started = [(run, stack.enter_context(ArmProcess(run.arm, case, MEMORY_ENVIRONMENT))) for run in now]
            for run, process in started:
                progress(f"{case.name}: memory of {run.arm.name}")
                try:
                    for what in [*["step"] * MEMORY_STEPS, "end"]:
                        process.order(what)
                    answers = [process.answer() for _ in range(MEMORY_STEPS + 2)]
                    run.facts.update({name: answers[-1][name] for name in ("peak_bytes", "mapped_bytes")})
                except ArmFailedError as error:
                    run.failed = f"while its memory was measured: {error}"
    progress("")
