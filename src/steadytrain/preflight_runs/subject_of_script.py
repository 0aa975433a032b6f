"""Makes a :class:`Subject` from the observations of a script: its model, its loss and further objects."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from steadytrain.checks.subject.model_check import Batch, CannotError, Subject
from steadytrain.core.errors import UsageError
from steadytrain.core.living_objects import living
from steadytrain.core.torch_private import DATASET, LOADER_ITERATOR
from steadytrain.preflight_runs.model_copies import Workbench
from steadytrain.preflight_runs.observer import Observed
from steadytrain.preflight_runs.source_rules import mistakes_read
from steadytrain.preflight_runs.task import task_of
from steadytrain.tracing.investigator import plain_module

TOKENIZER_CLASSES = ("PreTrainedTokenizerBase", "Tokenizer", "ProcessorMixin", "SentencePieceProcessor", "Encoding")
TOKENIZER_PACKAGES = ("transformers", "tokenizers", "sentencepiece", "tiktoken", "torchtune")
SCHEDULERS = (torch.optim.lr_scheduler.LRScheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)


def subject_of_script(observed: Observed, *, dataset: int | None, thorough: bool) -> tuple[Subject, Workbench]:
    """The subject of a script's first steps, and the workbench for its checks.

    Args:
        observed: the observed steps.
        dataset: ``id`` of the data set of the script's batches; None if unknown.
        thorough: see :class:`Subject`.

    Raises:
        UsageError: no module holds the parameters, or no batch was seen.
    """
    model, modules = _model(observed)
    if not observed.batches:
        raise UsageError("no batch was seen: the script calls no torch.nn.Module before backward; nothing was checked")
    optimizers = tuple(observed.stream.optimizers)
    batches = [batch for batch in observed.batches if batch.way is not None] or observed.batches
    way = batches[0].way
    loader = _loader(dataset)
    subject = Subject(
        model=model,
        batches=batches,
        look_at=None if way is None else lambda batch: batch.way.look(batch),
        why_no_loss="" if way is not None else f"the loss cannot be computed again: {observed.why_no_way}",
        loss_source=way.words.strip(" ,") if way is not None else "",
        optimizers=optimizers,
        schedulers=_schedulers(optimizers),
        scaler=next(iter(observed.scalers), None),
        tokenizer=find_tokenizer(observed.variables, observed.owner),
        loader=loader,
        dataset=getattr(loader, "dataset", None) if loader is not None else _dataset(dataset),
        clip_norm=observed.clip_norm,
        accumulation=observed.accumulation,
        planned_steps=_planned_steps(observed.owner),
        observed={
            "steps": [asdict(facts) for facts in observed.steps],
            "variables": observed.variables,
            "source": mistakes_read(),
        },
        owner=observed.owner,
        thorough=thorough,
    )
    objects = [*observed.objects, *([observed.owner] if observed.owner is not None else [])]
    bench = Workbench(
        [*modules, *(thing for thing in objects if isinstance(thing, nn.Module))], observed.initial, objects
    )
    return with_task(subject, bench), bench


def with_task(subject: Subject, bench: Workbench) -> Subject:
    """The subject with its task, derived from its first batch."""
    from dataclasses import replace

    with bench.copies(seed=0):
        try:
            look = subject.look(subject.batches[0])
        except CannotError as refusal:
            return replace(subject, look_at=None, why_no_loss=str(refusal))
        return replace(subject, task=task_of(look, subject.batches[0]))


def find_tokenizer(variables: Mapping[str, Any], owner: Any) -> Any:
    """A tokenizer in the script's trainer, its variables, or anywhere in the process; None if there is none."""
    for name in ("processing_class", "tokenizer"):
        if owner is not None and is_tokenizer(found := getattr(owner, name, None)):
            return found
    for value in list(variables.values()):
        if is_tokenizer(value):
            return value
    base = getattr(sys.modules.get("transformers.tokenization_utils_base"), "PreTrainedTokenizerBase", None)
    if base is None:
        return None
    return next(iter(living(base)), None)


def is_tokenizer(value: Any) -> bool:
    """Whether ``value`` turns text into ids, judged by its class."""
    kinds = type(value).__mro__
    known = any(
        kind.__name__ in TOKENIZER_CLASSES and kind.__module__.split(".")[0] in TOKENIZER_PACKAGES for kind in kinds
    )
    named = "okenizer" in type(value).__name__ and not isinstance(value, nn.Module)
    return known or (named and callable(getattr(value, "encode", None)) and callable(getattr(value, "decode", None)))


def _model(observed: Observed) -> tuple[nn.Module, Sequence[nn.Module]]:
    """The module to check, and all modules that may change: the roots of the trained and the called modules."""
    roots = [plain_module(root) for root in observed.stream.roots()]
    called = [plain_module(module) for module in observed.modules]
    if not roots:
        raise UsageError("no torch.nn.Module holds the optimizer's parameters: nothing was checked")
    everything = list({id(module): module for module in (*roots, *called, *observed.modules)}.values())
    return (roots[0] if len(roots) == 1 else nn.ModuleList(roots)), everything


def _schedulers(optimizers: Iterable[torch.optim.Optimizer]) -> tuple[Any, ...]:
    ours = {id(optimizer) for optimizer in optimizers}
    found = living(*SCHEDULERS)
    return tuple(one for one in found if ours & _ids_of(getattr(one, "optimizer", None)))


def _ids_of(optimizer: Any) -> set[int]:
    """The ids of an optimizer and of the optimizer that it wraps (Accelerate's)."""
    return {id(optimizer), id(getattr(optimizer, "optimizer", None))} - {id(None)}


def _loader(dataset: int | None) -> Any:
    """The data loader of the first batch: among several, the one with this data set."""
    if dataset is None:
        return None
    loaders = living(DataLoader)
    ours = [loader for loader in loaders if id(getattr(loader, "dataset", None)) == dataset]
    return next(iter(ours or (loaders if len(loaders) == 1 else ())), None)


def _dataset(wanted: int | None) -> Any:
    """The data set that is read, found through its iterator, because a loader in no variable is freed by now."""
    found = (DATASET.on(iterator) for iterator in living(LOADER_ITERATOR.get()))
    return next((dataset for dataset in found if id(dataset) == wanted), None) if wanted is not None else None


def _planned_steps(owner: Any) -> int | None:
    """The number of optimizer steps that a trainer plans; None if unknown."""
    state = getattr(owner, "state", None)
    for place in (getattr(state, "max_steps", None), getattr(getattr(owner, "args", None), "max_steps", None)):
        if isinstance(place, int) and place > 0:
            return place
    trainer = getattr(owner, "_trainer", None) or getattr(owner, "_fabric", None)
    planned = getattr(trainer, "estimated_stepping_batches", None) if trainer is not None else None
    return int(planned) if isinstance(planned, (int, float)) and 0 < planned < float("inf") else None


def rows_of(batches: Sequence[Batch]) -> int:
    return sum(batch.rows or 0 for batch in batches)
