"""A preflight of a model in code, and single checks for tests.

>>> report = preflight(model=model, batches=[(x, y)], loss_fn=lambda model, batch: mse(model(batch[0]), batch[1]))
>>> assert report.ok, report
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, TypedDict

import torch
from torch import nn

from steadytrain.capture.snapshots.digests import text_digest
from steadytrain.checks.subject.model_check import Batch, CannotError, Check, Outcome, Subject, tensors_of
from steadytrain.core.errors import UsageError
from steadytrain.core.signatures import chosen as chosen_options
from steadytrain.core.signatures import takes_options
from steadytrain.preflight_runs.check_catalog import check_name, chosen
from steadytrain.preflight_runs.loss_again import FunctionWay
from steadytrain.preflight_runs.model_copies import Workbench
from steadytrain.preflight_runs.runner import document, run_checks, run_one
from steadytrain.preflight_runs.subject_of_script import with_task

if TYPE_CHECKING:
    from typing_extensions import Unpack

BATCHES_MAX = 32
LossFunction = Callable[[nn.Module, Any], Any]


@dataclass(frozen=True)
class Preflight:
    """The result of a preflight. ``str()`` is the table."""

    document: Mapping[str, Any]

    @property
    def ok(self) -> bool:
        """No check failed."""
        return not self.failed

    @property
    def failed(self) -> tuple[str, ...]:
        """The names of the checks that failed."""
        return tuple(entry["name"] for entry in self.document["checks"] if entry["status"] == "fail")

    def __getitem__(self, name: str) -> Outcome:
        for entry in self.document["checks"]:
            if entry["name"] == name:
                fields = ("status", "message", "numbers", "meaning", "next")
                return Outcome(*(entry[field] for field in fields))
        raise KeyError(name)

    def __str__(self) -> str:
        from steadytrain.report.preflight import as_text

        return as_text(self.document)


@dataclass(frozen=True)
class Given:
    """The keyword arguments of :func:`preflight`."""

    model: nn.Module
    batches: Iterable[object]
    loss_fn: LossFunction | None = None
    optimizer: torch.optim.Optimizer | None = None
    tokenizer: object = None
    scheduler: torch.optim.lr_scheduler.LRScheduler | None = None
    dataset: object = None
    accumulation: int = 1

    def __post_init__(self) -> None:
        model, optimizer = self.model, self.optimizer
        if not isinstance(model, nn.Module):
            raise UsageError(f"preflight: model must be a torch.nn.Module, got {type(model).__name__}")
        if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
            raise UsageError(f"preflight: optimizer must be a torch.optim.Optimizer, got {type(optimizer).__name__}")
        if isinstance(self.batches, (torch.Tensor, Mapping, str)):
            kind = type(self.batches).__name__
            raise UsageError(f"preflight: batches must be several batches, in a list; got one {kind}")


class _MustBeGiven(TypedDict):
    model: nn.Module
    batches: Iterable[object]


class GivenKeywords(_MustBeGiven, total=False):
    """The fields of :class:`Given` as keywords. Omitted ones have their default."""

    loss_fn: LossFunction | None
    optimizer: torch.optim.Optimizer | None
    tokenizer: object
    scheduler: torch.optim.lr_scheduler.LRScheduler | None
    dataset: object
    accumulation: int


@takes_options(Given)
def preflight(
    *,
    checks: Sequence[str] = (),
    skip: Sequence[str] = (),
    thorough: bool = False,
    **given: Unpack[GivenKeywords],
) -> Preflight:
    """Check ``model`` on its first batches, before training. Afterwards everything is restored.

    Args:
        model: the model before its first update.
        batches: some micro-batches in the form that ``loss_fn`` takes; at most ``BATCHES_MAX`` are read.
        loss_fn: ``loss_fn(model, batch)`` gives the loss, one number with its graph. Without it the model is called
            with the batch (a mapping by name, a tuple in order) and returns the loss, or has it as ``.loss``.
        optimizer: the one that will train the model; without it, checks of the optimizer do not run.
        tokenizer: for token checks.
        scheduler: the learning-rate scheduler.
        dataset: the data set of the batches.
        accumulation: micro-batches for each optimizer step.
        checks: names of the checks to run; all by default.
        skip: names of checks to skip.
        thorough: as ``--full``.

    Raises:
        UsageError: an argument is of the wrong kind, or the loss cannot be computed.

    Examples:
        >>> def loss_of(model, batch):
        ...     return model(batch).square().mean()
        >>> result = steadytrain.preflight(model=model, batches=[batch], loss_fn=loss_of, checks=["eval-determinism"])
        >>> result.ok, result["eval-determinism"].status
        (True, 'pass')
    """
    subject, bench = subject_of(**given)
    subject = replace(subject, thorough=thorough)
    results = run_checks(subject, bench, chosen(tuple(checks), tuple(skip)), modules=[given["model"]])
    if results.moved:
        raise RuntimeError(f"the preflight did not restore what it found: {text_digest(*results.moved)}")
    return Preflight(document(subject, results, script=None))


def check(one: Check | str, **given: Unpack[GivenKeywords]) -> Outcome:
    """Runs one check, by name or as an object with its own thresholds. ``given`` is as for :func:`preflight`."""
    chosen_check = chosen((one,), ())[0] if isinstance(one, str) else one
    subject, bench = subject_of(**given)
    return run_one(chosen_check, subject, bench)


def subject_of(**given: Unpack[GivenKeywords]) -> tuple[Subject, Workbench]:
    """The subject of a model in code, and its workbench. Arguments and errors are as for :func:`preflight`."""
    of = chosen_options(Given, given, "preflight")
    batches = list(islice(iter(of.batches), BATCHES_MAX))
    if not batches:
        raise UsageError("preflight: batches is empty; give at least one")
    if not tensors_of([batches[0]]):
        raise UsageError(f"preflight: the first batch holds no tensor: {type(batches[0]).__name__}")
    way = FunctionWay([of.model], of.model, of.loss_fn)
    bench = Workbench([of.model])
    subject = Subject(
        model=of.model,
        batches=(),
        look_at=lambda batch: batch.way.look(batch),
        loss_source=way.words,
        optimizers=() if of.optimizer is None else (of.optimizer,),
        schedulers=() if of.scheduler is None else (of.scheduler,),
        tokenizer=of.tokenizer,
        dataset=of.dataset,
        accumulation=of.accumulation,
    )
    with bench.copies(seed=0):
        try:
            looked = [_batch(way, value, step) for step, value in enumerate(batches, start=1)]
        except CannotError as refusal:
            raise UsageError(f"preflight: {refusal}") from refusal
    return with_task(replace(subject, batches=looked), bench), bench


def _batch(way: FunctionWay, value: Any, step: int) -> Batch:
    """The batch with the arguments of its model call."""
    batch = Batch(step, {"batch": value}, raw=value, way=way)
    calls = way.look(batch).calls
    args, kwargs = (calls[0][1], calls[0][2]) if calls else ((), {})
    first = next((t for t in tensors_of([args, dict(kwargs), value]) if t.dim() > 0), None)
    return replace(batch, args=tuple(args), kwargs=dict(kwargs), rows=len(first) if first is not None else None)


__all__ = ["Preflight", "check", "check_name", "preflight", "subject_of"]
