"""The contract of a model check: what it gets, and what it returns.

::

    script ──► first steps ──► Subject ──► Check.inspect ──► Outcome
                               (copies)

A :class:`Subject` is the script's own model, with copies as weights and buffers while a check runs. A check may train
it, switch its modes and change its values freely; the runner (``preflight_runs``) restores and verifies everything.
This module imports no torch, so that documentation and outcomes can be read without it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from steadytrain.core.json_values import JsonValue
from steadytrain.core.plugin_pages import Pages
from steadytrain.core.plugins import Kind

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

Status = Literal["pass", "warn", "fail", "not-run"]
STATUSES: tuple[Status, ...] = ("pass", "warn", "fail", "not-run")
Cost = Literal["free", "seconds", "minutes"]
"""``free``: inspects existing objects, at most a forward; ``seconds``: some forwards and backwards; ``minutes``: short
trainings, or new processes. ``--fast`` omits checks that cost minutes and have no quicker form."""

Task = Literal["causal-lm", "masked-lm", "seq2seq", "classification", "regression", "unknown"]
DEPTH_MAX = 8


class CannotError(Exception):
    """A check cannot run on this subject; the text says why. The runner reports it as ``not run: why``."""


@dataclass(frozen=True)
class Outcome(JsonValue):
    """The result of a check.

    Args:
        status: ``fail``: a proven fault; ``warn``: unusual, look at it; ``not-run``: it could not run or does not apply
            (``message`` says why).
        message: one sentence with the finding, for this subject.
        numbers: the measurements by name, as JSON values.
        meaning: what the finding means; "": the ``Means`` of the check's docstring.
        next: what to do; "": the first entry of its ``Next``.
    """

    status: Status
    message: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    meaning: str = ""
    next: str = ""


def passed(message: str, **numbers: Any) -> Outcome:
    return Outcome("pass", message, numbers)


def warned(message: str, *, meaning: str = "", next: str = "", **numbers: Any) -> Outcome:
    return Outcome("warn", message, numbers, meaning, next)


def failed(message: str, *, meaning: str = "", next: str = "", **numbers: Any) -> Outcome:
    return Outcome("fail", message, numbers, meaning, next)


def not_run(why: str, **numbers: Any) -> Outcome:
    return Outcome("not-run", why, numbers)


@dataclass(frozen=True, eq=False)
class LossCall:
    """A call of one of torch's loss functions. ``function`` is its name (``cross_entropy``).

    ``scores`` and ``targets`` are its inputs, ``options`` its other arguments by name. ``made_by`` names the torch
    function that made ``scores`` (``softmax``), "" if unknown.
    """

    function: str
    scores: Tensor
    targets: Any
    options: Mapping[str, Any]
    made_by: str
    result: Any


@dataclass(frozen=True, eq=False)
class Look:
    """One forward of the script up to its loss, as observed.

    ``loss`` is the tensor that backward starts from, with its graph. ``calls`` are the calls of the script's root
    modules: (module, args, kwargs, output). ``loss_calls`` are those of torch's loss functions, in order.
    """

    loss: Tensor
    calls: Sequence[tuple[nn.Module, tuple[Any, ...], Mapping[str, Any], Any]]
    loss_calls: Sequence[LossCall]

    @property
    def output(self) -> Any:
        """The return value of the last call of a root module."""
        return self.calls[-1][3] if self.calls else None


@dataclass(frozen=True, eq=False)
class Batch:
    """One micro-batch of the script.

    Args:
        step: its optimizer step, from 1.
        values: the inputs of the loss code, by name: variables of the script's own lines (``x``, ``y``, ``batch``), the
            arguments of a model that returns its loss (``input_ids``, ``labels``; positional ones as ``args[0]``), or
            those of ``training_step``. Trees of lists, tuples, mappings and tensors.
        args: the model's positional arguments. Tensors that are passed on unchanged are the same objects as in
            ``values``.
        kwargs: the model's keyword arguments.
        rows: the number of examples, from the first dimension of the model's input; None if unknown.
        raw: the data loader's output for it, None without a loader.
        way: how its loss is computed, for the runner only.
    """

    step: int
    values: Mapping[str, Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    rows: int | None = None
    raw: Any = None
    way: Any = field(default=None, repr=False)

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """Replace each tensor. The same tensor gets the same result in ``values``, ``args`` and ``kwargs``.

        ``rows`` follows the model's first tensor.
        """
        known: dict[int, tuple[Tensor, Tensor]] = {}

        def once(tensor: Tensor) -> Tensor:
            if id(tensor) not in known:
                known[id(tensor)] = (tensor, change(tensor))
            return known[id(tensor)][1]

        args, kwargs = changed_tree(self.args, once), changed_tree(dict(self.kwargs), once)
        values = changed_tree(dict(self.values), once)
        rows = self.rows
        if rows is not None:
            rows = next((len(t) for t in tensors_of([args, kwargs, values]) if t.dim() > 0), rows)
        return replace(self, values=values, args=args, kwargs=kwargs, rows=rows)

    def taken(self, rows: Sequence[int]) -> Batch:
        """Only these rows, in this order. Values without rows stay unchanged.

        Raises:
            CannotError: the rows are unknown, or there are none.
        """
        count = self.rows
        if count is None or not any(len(t) == count for t in tensors_of(dict(self.values)) if t.dim() > 0):
            raise CannotError("the tensors do not show which dimension holds the rows of the batch")
        index = list(rows)
        return self.mapped(lambda tensor: tensor[index] if tensor.dim() > 0 and len(tensor) == count else tensor)

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of ``values`` by their path: ``batch.input_ids``, ``tensors.0``."""
        found: dict[str, Tensor] = {}

        def walk(value: Any, path: str, depth: int) -> None:
            if _is_tensor(value):
                found[path] = value
            elif depth < DEPTH_MAX and isinstance(value, Mapping):
                for key, entry in value.items():
                    walk(entry, f"{path}.{key}" if path else str(key), depth + 1)
            elif depth < DEPTH_MAX and isinstance(value, (list, tuple)):
                for key, entry in enumerate(value):
                    walk(entry, f"{path}.{key}", depth + 1)

        walk(dict(self.values), "", 0)
        return found


@dataclass(frozen=True, eq=False)
class Subject:
    """The material of a preflight. Its parts are the script's own; the runner restores values that a check changes.

    Args:
        model: the module with what the optimizers train. A check sees the weights from before the first update.
        batches: the micro-batches of the script's first steps, oldest first; at least one.
        look_at: runs the script's own code from the model's call to backward on a batch; see :meth:`look`.
        why_no_loss: why there is no ``look_at``, "" if there is one.
        loss_source: a text that says which code that is.
        task: what the model learns, if known.
        optimizers: the script's own; a check reads them and steps none (:meth:`new_optimizer`).
        schedulers: learning-rate schedulers found.
        scaler: the gradient scaler, if one is in use.
        tokenizer: found in the script's variables, or given.
        loader: the script's loader of training batches, or None.
        dataset: its data set, or None.
        clip_norm: the norm to which the script clips gradients, None if it does not.
        accumulation: micro-batches per optimizer step.
        planned_steps: the number of optimizer steps that the script plans, if known.
        observed: what was seen in the script's first steps, by name; ``docs/preflight.md`` lists it.
        owner: the trainer or LightningModule whose code computes the loss, None for a plain loop.
        thorough: ``--full``: take time for more steps and rows.
        time_left: seconds that this check may still take.
    """

    model: nn.Module
    batches: Sequence[Batch]
    look_at: Callable[[Batch], Look] | None
    why_no_loss: str = ""
    loss_source: str = ""
    task: Task = "unknown"
    optimizers: Sequence[torch.optim.Optimizer] = ()
    schedulers: Sequence[Any] = ()
    scaler: Any = None
    tokenizer: Any = None
    loader: Any = None
    dataset: Any = None
    clip_norm: float | None = None
    accumulation: int = 1
    planned_steps: int | None = None
    observed: Mapping[str, Any] = field(default_factory=dict)
    owner: Any = None
    thorough: bool = False
    time_left: Callable[[], float] = lambda: 60.0

    def look(self, batch: Batch) -> Look:
        """Run the script's loss code on ``batch``, with the model's current weights and mode and the global random
        state.

        Raises:
            CannotError: the loss code cannot run again, or not on this batch.
        """
        if self.look_at is None:
            raise CannotError(self.why_no_loss or "the code that computes the loss cannot be run again")
        return self.look_at(batch)

    def loss(self, batch: Batch) -> Tensor:
        """The loss that backward would start from, with its graph.

        Raises:
            CannotError: as :meth:`look`.
        """
        return self.look(batch).loss

    def new_optimizer(self, **changes: Any) -> torch.optim.Optimizer:
        """A new optimizer of the class and settings of the script's first one, with fresh state and ``changes`` in its
        groups.

        Raises:
            CannotError: there is none, or its class cannot be built from its groups.
        """
        if not self.optimizers:
            raise CannotError("no optimizer was found")
        ours = self.optimizers[0]
        groups = [{**group, "params": list(group["params"]), **changes} for group in ours.param_groups]
        for group in groups:
            group.pop("initial_lr", None)
        try:
            made: Any = type(ours)
            optimizer: torch.optim.Optimizer = made(groups)
        except Exception as error:
            kind = type(ours).__qualname__
            raise CannotError(f"another {kind} could not be made: {type(error).__name__}: {error}") from None
        return optimizer

    def trainable(self) -> dict[str, Tensor]:
        """The parameters that the optimizers hold, by name."""
        held = {id(p) for o in self.optimizers for group in o.param_groups for p in group["params"]}
        return {name: p for name, p in self.model.named_parameters() if id(p) in held}


@dataclass(frozen=True)
class Check(ABC):
    """The contract of a check. Subclasses are final; their fields are thresholds, with ``about`` in their metadata.

    ``quick`` says that a check that costs minutes has a form for ``--fast`` (``subject.thorough`` is then False). A
    check that is ``first`` runs before others of the same cost, because it is most informative if time is short.
    ``steadytrain explain`` shows ``cost`` and ``source`` (the paper, issue, or measurement behind the rule).
    """

    cost: ClassVar[Cost] = "seconds"
    quick: ClassVar[bool] = False
    first: ClassVar[bool] = False
    source: ClassVar[str] = ""

    @abstractmethod
    def inspect(self, subject: Subject) -> Outcome:
        """Inspect ``subject``. A check that does not apply returns ``not_run``, or raises :class:`CannotError`."""


CHECKS = Kind("check", Check, "steadytrain.checks.model", "steadytrain.checks", heavy=True)

CHECK_PAGES = Pages(
    kind=CHECKS,
    noun="check",
    key="checks",
    heading="Checks of steadytrain preflight",
    schema="steadytrain.check-explanation/1",
    document=("name", "summary", "means", "causes", "next", "cost", "source", "thresholds"),
    traits=lambda check: {"cost": check.cost, "source": check.source},
    closing=lambda page: [f"{name.capitalize()}: {value}" for name, value in page.traits.items() if value],
    title="Checks",
    intro="What `steadytrain preflight` checks before the first update (`preflight.md`). `steadytrain explain NAME`\n"
    "prints the same in a terminal.",
    columns=("cost",),
    markdown_closing=lambda page: [f"{name.capitalize()}: {value}." for name, value in page.traits.items() if value],
)


def tensors_of(value: Any) -> list[Tensor]:
    """Every tensor in nested lists, tuples and mappings, in order."""
    found: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    changed_tree(value, keep)
    return found


def changed_tree(value: Any, change: Callable[[Tensor], Tensor], depth: int = 0) -> Any:
    """``value`` with each tensor replaced. Mappings other than dict (a tokenizer's encoding) keep their class."""
    if _is_tensor(value):
        return change(value)
    if depth >= DEPTH_MAX:
        return value
    if isinstance(value, list):
        return [changed_tree(entry, change, depth + 1) for entry in value]
    if isinstance(value, tuple):
        entries = [changed_tree(entry, change, depth + 1) for entry in value]
        return type(value)(*entries) if hasattr(value, "_fields") else tuple(entries)
    if isinstance(value, Mapping):
        entered = {key: changed_tree(entry, change, depth + 1) for key, entry in value.items()}
        if type(value) is dict:
            return entered
        try:
            return type(value)(entered)  # type: ignore[call-arg]
        except Exception:
            return entered
    return value


def _is_tensor(value: Any) -> bool:
    import sys

    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)
