"""Trials of a recorded loop, run in the test's own process: probes go round the loop and are refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch.nn import functional
from torch.utils.data import DataLoader

from replaying import Loop
from steadytrain.capture.settings import Settings
from steadytrain.capture.step.watcher import Watcher
from steadytrain.detection import run_recorder
from steadytrain.experiments.specs import Change, Entry, Outcome, Spec
from steadytrain.storage.tape_files import Recording
from steadytrain.trial_runs.changes import make
from steadytrain.trial_runs.job import Job
from steadytrain.trial_runs.runner import TrialRun

PATCHED = (
    (torch.autocast, "__enter__"),
    (torch, "manual_seed"),
    (torch, "arange"),
    (torch.nn.Module, "register_buffer"),
    (torch.nn.Module, "__call__"),
    (DataLoader, "__init__"),
    (torch.nn.utils, "clip_grad_norm_"),
    (torch.nn.utils.clip_grad, "clip_grad_norm_"),
    (functional, "scaled_dot_product_attention"),
    (functional, "softmax"),
)


class TrialOver(BaseException):
    """Ends the loop where the process of a trial would end."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome)
        self.outcome = outcome


@contextmanager
def left_as_it_was() -> Iterator[None]:
    """Changes patch their process for good, which in a test is everybody's."""
    kept = [(owner, name, getattr(owner, name)) for owner, name in PATCHED]
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    deterministic = torch.are_deterministic_algorithms_enabled()
    try:
        yield
    finally:
        for owner, name, value in kept:
            setattr(owner, name, value)
        torch.compiler.set_stance("default")
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
        torch.use_deterministic_algorithms(deterministic)


def attempt(
    loop: Loop,
    recording: Recording,
    schedule: Sequence[Entry],
    *changes: Change,
    begin: int | None = 5,
    own_steps: int | None = None,
) -> Outcome:
    """Run ``schedule`` on the loop from the snapshot after step ``begin``."""
    spec = Spec("test", 0, begin, tuple(schedule), changes)
    made = [make(change) for change in changes]

    def report(outcome: Outcome) -> None:
        raise TrialOver(outcome)

    with left_as_it_was():
        watcher: Watcher | None = None
        run: TrialRun | None = None
        try:
            run = TrialRun(
                recording,
                begin=begin,
                own_steps=(begin or 0) if own_steps is None else own_steps,
                stage=lambda: Job(spec, made, report),
                copies=False,
            )
            for change in made:
                change.early(run.process)
            settings = Settings(run_dir=recording.folder / "unused", run_name="trial", policy="observe")
            watcher = Watcher(settings, tell=print, record=run_recorder.recording(), observer=run)
            try:
                loop()
            except Exception as error:
                watcher.script_over(error)
                raise
            watcher.script_over(None)
            run.finish("the script's loop was over")
        except TrialOver as over:
            return over.outcome
        finally:
            if run is not None:
                run.process.functions.end()
            if watcher is not None:
                watcher.close(ended="failed")
    raise AssertionError("a trial ends with its outcome")


def trained(*steps: int | None) -> list[Entry]:
    return [Entry(step) for step in steps]


def losses(outcome: Outcome) -> list[float | None]:
    return [seen.loss for seen in outcome.steps]
