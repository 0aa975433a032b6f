"""Whether the workers of the data loader draw the same random numbers."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
import torch

from steadytrain.checks.subject.data_set_rows import is_indexed
from steadytrain.checks.subject.model_check import Check, Cost, Outcome, Subject, failed, not_run, passed, warned
from steadytrain.checks.subject.own_steps import RandomStates

DEPTH_MAX = 4
OBJECTS_MAX = 2000
TRIES = 3


@final
@dataclass(frozen=True)
class WorkerRandomness(Check):
    """Workers of the loader draw different random numbers.

    Means:
        Each worker process gets a copy of the data set. A generator inside the data set is copied with its state, so
        all workers draw the same numbers, and the same ones in every epoch: augmentation repeats, and with four workers
        three quarters of it is lost. The loader seeds the global generators of torch, NumPy and Python for each worker;
        a custom ``worker_init_fn`` may undo that.

    Causes:
        - ``np.random.default_rng(seed)`` or ``random.Random(seed)`` made in the data set's ``__init__``
        - a ``worker_init_fn`` that sets the same seed in every worker

    Next:
        1. Create the generator in the worker, from ``torch.utils.data.get_worker_info().seed``.
        2. Or draw from torch's global generator, which the loader seeds.
    """

    cost: ClassVar[Cost] = "seconds"
    source: ClassVar[str] = "tanelp, a bug in tens of thousands of projects (2021); pytorch PR #56488, #5059"

    def inspect(self, subject: Subject) -> Outcome:
        loader = subject.loader
        if loader is None:
            return not_run("no data loader was found")
        workers = int(getattr(loader, "num_workers", 0) or 0)
        own = _generators(subject.dataset)
        numbers: dict[str, Any] = {"workers": workers, "generators": sorted(own)}
        if workers == 0:
            return not_run("the loader has no worker processes", **numbers)
        constant = _seeds_alike(getattr(loader, "worker_init_fn", None))
        if constant:
            told = f"worker_init_fn gives {workers} workers the same state of {', '.join(constant)}"
            return failed(told, **numbers) if workers > 1 else warned(told, **numbers)
        used = _drawn_from(subject.dataset, own)
        numbers["drawn_from"] = used
        if used and getattr(loader, "worker_init_fn", None) is None:
            again = "" if getattr(loader, "persistent_workers", False) else ", and the same again in every epoch"
            if workers > 1:
                return failed(f"{workers} workers draw the same numbers from {', '.join(used)}{again}", **numbers)
            return warned(f"the worker draws from {', '.join(used)}, which begins anew in every epoch", **numbers)
        if own and used is None:
            return warned(f"the data set holds {', '.join(sorted(own))}, which is the same in all workers", **numbers)
        return passed(f"{workers} workers draw from generators that the loader seeds", **numbers)


def _generators(dataset: Any) -> dict[str, Any]:
    """Random generators that the data set holds, by path."""
    found: dict[str, Any] = {}
    seen: set[int] = set()
    stack: list[tuple[str, Any, int]] = [("dataset", dataset, 0)]
    kinds = (np.random.Generator, np.random.RandomState, random.Random, torch.Generator)
    while stack and len(seen) < OBJECTS_MAX:
        path, thing, depth = stack.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, kinds):
            found[path] = thing
        elif depth < DEPTH_MAX:
            stack += [(f"{path}{name}", inner, depth + 1) for name, inner in _inside(thing)]
    return found


def _inside(thing: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(thing, Mapping):
        yield from ((f"[{key!r}]", value) for key, value in list(thing.items())[:64])
    elif isinstance(thing, (list, tuple)):
        yield from ((f"[{place}]", value) for place, value in enumerate(thing[:64]))
    elif hasattr(thing, "__dict__") and not isinstance(thing, (type, torch.Tensor, np.ndarray)):
        yield from ((f".{name}", value) for name, value in vars(thing).items())


def _drawn_from(dataset: Any, own: Mapping[str, Any]) -> list[str] | None:
    """Which of its own generators the data set uses to produce a row, None if no row can be requested.

    Restores the generators afterwards.
    """
    if not own:
        return []
    if not is_indexed(dataset):
        return None
    before = {path: _state(generator) for path, generator in own.items()}
    used = []
    try:
        for place in range(min(TRIES, len(dataset))):
            dataset[place]
    except Exception:  # the data set's own code
        return None
    finally:
        for path, generator in own.items():
            if repr(_state(generator)) != repr(before[path]):
                used.append(path)
            _restore(generator, before[path])
    return sorted(used)


def _state(generator: Any) -> Any:
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, torch.Generator):
        return generator.get_state().tolist()
    return generator.get_state(legacy=False) if isinstance(generator, np.random.RandomState) else generator.getstate()


def _restore(generator: Any, state: Any) -> None:
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, torch.Generator):
        generator.set_state(torch.tensor(state, dtype=torch.uint8))
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(state)
    else:
        generator.setstate(state)


def _seeds_alike(function: Any) -> list[str]:
    """Generators that a ``worker_init_fn`` leaves in the same state for two workers that started differently."""
    if function is None:
        return []
    kept = RandomStates.take()
    states = []
    try:
        for worker in (0, 1):
            # The loader seeds them like this before it calls the function.
            torch.manual_seed(1000 + worker)
            random.seed(1000 + worker)
            np.random.seed(1000 + worker)
            function(worker)
            numpy_state = np.random.get_state(legacy=False)
            states.append((torch.get_rng_state().tolist(), repr(numpy_state), random.getstate()))
    except Exception:  # it may need something that only a worker has
        return []
    finally:
        kept.restore()
    names = ("torch", "NumPy", "Python")
    return [name for name, one, other in zip(names, *states, strict=True) if one == other]
