"""Whether the learning-rate schedule matches the planned steps."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

from torch.optim import lr_scheduler

from steadytrain.checks.subject.model_check import Check, Cost, Outcome, Subject, failed, not_run, passed, warned
from steadytrain.core.plugins import threshold
from steadytrain.core.torch_private import INNER_SCHEDULERS, MILESTONES

STEPS_MIN = 2
"""Optimizer steps needed to distinguish a schedule by steps from one by epochs."""

_LENGTHS = ("num_training_steps", "total_steps", "max_steps", "t_total", "max_iters", "total_iters", "T_max")
_DEPTH = 4


@final
@dataclass(frozen=True)
class SchedulerAudit(Check):
    """The schedule steps once per optimizer step and ends when training ends.

    Means:
        A schedule that is stepped in every micro-batch, or once for each process, ends early: the learning rate reaches
        its end after a fraction of training, or a cosine rises again. A schedule longer than training never decays
        fully, which loses the large gain of the final decay.

    Causes:
        - ``scheduler.step()`` inside the loop over micro-batches
        - a scheduler made for one process but prepared by Accelerate, which steps it once for each process
        - a length in epochs instead of steps, or not divided by accumulation
        - ``scheduler.step()`` before ``optimizer.step()``: the first value is skipped

    Next:
        1. Step the scheduler right after ``optimizer.step()``, once.
        2. Set its length to the number of optimizer steps: batches x epochs / accumulation, and / processes.
        3. Print the learning rate of every step of a short run.
    """

    cost: ClassVar[Cost] = "free"
    source: ClassVar[str] = "accelerate #2926, #2142; transformers #26827; particulate #22"

    off_share: float = threshold(0.05, "a length that differs from the planned steps by more than this share warns")

    def inspect(self, subject: Subject) -> Outcome:
        if not subject.schedulers:
            return not_run("no learning-rate scheduler was found")
        taken = len(subject.observed.get("steps", ()))
        plateau = [s for s in subject.schedulers if isinstance(s, lr_scheduler.ReduceLROnPlateau)]
        counted = [s for s in subject.schedulers if not isinstance(s, lr_scheduler.ReduceLROnPlateau)]
        if plateau and not counted:
            return not_run("ReduceLROnPlateau follows the loss: it has no length")
        outer = max(counted, key=lambda scheduler: len(INNER_SCHEDULERS.on(scheduler, ())))
        stepped = int(getattr(outer, "last_epoch", 0))
        length, planned = _length(outer, 0), subject.planned_steps
        processes = _processes(subject)
        numbers: dict[str, Any] = {
            "scheduler": type(outer).__name__,
            "scheduler_steps": stepped,
            "optimizer_steps_before": max(taken - 1, 0),
            "schedule_length": length,
            "planned_steps": planned,
            "accumulation": subject.accumulation,
            "processes": processes,
            "learning_rates": [step["learning_rate"] for step in subject.observed.get("steps", ())],
        }
        faults, oddities = _stepping(stepped, taken, subject.accumulation)
        if processes > 1 and length is not None and planned is not None and length <= planned * (1 + self.off_share):
            faults.append(
                f"Accelerate steps the schedule {processes} times for each optimizer step: its {length} steps are over "
                f"after {length // processes} of {planned}"
            )
        elif length is not None and planned is not None and stepped > 0:
            oddities += self._lengths(length, planned)
        if faults:
            return failed("; ".join([*faults, *oddities]), **numbers)
        if oddities:
            return warned("; ".join(oddities), **numbers)
        if taken < STEPS_MIN and (length is None or planned is None):
            return not_run("too few steps were seen to tell how often the schedule is stepped", **numbers)
        told = "a step of the schedule for each of the optimizer" if stepped else "the schedule was not stepped yet"
        ends = f"; it ends after {length} of {planned} steps" if length is not None and planned is not None else ""
        return passed(f"{told}{ends}", **numbers)

    def _lengths(self, length: int, planned: int) -> list[str]:
        off = abs(length - planned) / planned
        if off <= self.off_share:
            return []
        which = "never comes to its end" if length > planned else "is over, or begins again, before the end"
        return [f"the schedule has {length} steps and training {planned}: it {which}"]


def _stepping(stepped: int, taken: int, accumulation: int) -> tuple[list[str], list[str]]:
    """Faults that the counts show. ``taken`` optimizer steps began; the last one is unfinished."""
    done = taken - 1
    if done < STEPS_MIN - 1 or stepped == 0:
        return [], []
    times = stepped / done
    if times >= 2.0 and (done >= STEPS_MIN or stepped > taken):
        why = f" (there are {accumulation} micro-batches)" if accumulation > 1 else ""
        return [f"the schedule has taken {stepped} steps in {done} of the optimizer{why}"], []
    if stepped == taken:
        return [], ["the schedule is stepped before the optimizer: its first value is skipped"]
    return [], []


def _length(scheduler: Any, depth: int) -> int | None:
    """The length of a schedule in steps, None if unknown."""
    for name in ("total_steps", "T_max", "total_iters"):
        value = getattr(scheduler, name, None)
        if isinstance(value, (int, float)) and value > 0:
            return int(value)
    milestones = MILESTONES.on(scheduler)
    parts: Sequence[Any] = INNER_SCHEDULERS.on(scheduler, ())
    if milestones and parts and depth < _DEPTH:
        last = _length(parts[-1], depth + 1)
        return int(milestones[-1]) + last if last is not None else None
    for function in getattr(scheduler, "lr_lambdas", None) or ():
        if isinstance(function, functools.partial):
            for name in _LENGTHS:
                value = function.keywords.get(name)
                if isinstance(value, (int, float)) and value > 0:
                    return int(value)
    return None


def _processes(subject: Subject) -> int:
    """Number of schedule steps that Accelerate takes for each optimizer step."""
    held = vars(subject.owner).values() if hasattr(subject.owner, "__dict__") else ()
    for value in [*subject.observed.get("variables", {}).values(), *held]:
        if type(value).__name__ == "AcceleratedScheduler" and not getattr(value, "split_batches", False):
            from accelerate.state import AcceleratorState

            return int(AcceleratorState().num_processes) if getattr(value, "step_with_optimizer", True) else 1
    return 1
