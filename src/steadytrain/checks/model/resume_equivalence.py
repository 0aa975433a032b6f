"""Whether a run continues from its saved state as if it had not stopped."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from steadytrain.checks.subject.model_check import CannotError, Check, Cost, Outcome, Subject, failed, not_run, passed
from steadytrain.checks.subject.own_steps import Point, at_peak, distance, few_rows, in_turn, train
from steadytrain.core.plugins import threshold

STEPS = {"fast": 2, "full": 6}
NAMED_MAX = 5


@final
@dataclass(frozen=True)
class ResumeEquivalence(Check):
    """n steps, a save and load, and n more steps equal 2n steps.

    Means:
        The check loads only the state dictionaries of model and optimizer and resets everything else, as a new process
        would; batches and random numbers are the same. If the steps differ, these dictionaries lack state that the next
        steps need. A resumed run then continues from a different state: the loss jumps, or drifts unnoticed.

    Causes:
        - buffers registered with ``persistent=False``, counters and averages in plain attributes
        - an optimizer with state outside ``self.state``, or a custom ``state_dict`` that omits some
        - a different order of parameters in the optimizer when the model is created anew

    Next:
        1. Register state that forward reads and changes as a persistent buffer.
        2. Compare a resumed run with an uninterrupted one (``steadytrain audit`` names what is missing in a
           checkpoint).
    """

    cost: ClassVar[Cost] = "minutes"
    quick: ClassVar[bool] = True
    source: ClassVar[str] = "apex #180, torchtitan #1136, transformers #25849; bitwise on the same machine"

    noise_times: float = threshold(4.0, "a difference up to this many times that of a plain repetition passes")

    def inspect(self, subject: Subject) -> Outcome:
        if not subject.optimizers:
            return not_run("no optimizer was found")
        steps = STEPS["full" if subject.thorough else "fast"]
        batches = in_turn(few_rows(subject), 2 * steps)
        model = subject.model
        start = Point.take(model)
        optimizer = at_peak(subject)
        train(subject, optimizer, batches[:steps], all_or_none=True)
        middle = Point.take(model)
        saved = _saved(model, optimizer)
        went_on = train(subject, optimizer, batches[steps:], all_or_none=True)
        expected = _values(model)

        # Repeat without stopping: a difference here does not come from saving.
        start.restore()
        again = train(subject, at_peak(subject), batches, all_or_none=True)[steps:]
        noise = distance(expected, _values(model))

        start.restore()
        fresh = at_peak(subject)
        _load(model, fresh, saved)
        middle.random_states.restore()
        resumed = train(subject, fresh, batches[steps:], all_or_none=True)
        if len(resumed) < steps or len(again) < steps or len(went_on) < steps:
            return not_run("the loss is not finite within the steps of the test; see the check warm-up")
        differs = distance(expected, _values(model))
        first = abs(resumed[0] - went_on[0])
        numbers: dict[str, Any] = {
            "steps": steps,
            "losses": went_on,
            "losses_resumed": resumed,
            "losses_repeated": again,
            "weights_difference": differs,
            "noise": noise,
        }
        if differs <= self.noise_times * noise and first <= self.noise_times * abs(again[0] - went_on[0]):
            same = "to the last bit" if differs == 0.0 else "to the noise of a repetition"
            return passed(f"{steps} steps, saving and loading, and {steps} more: the same {same}", **numbers)
        unsaved = _unsaved(model, middle)
        where = "the model" if first > self.noise_times * abs(again[0] - went_on[0]) else "the optimizer"
        named = f"; not in its state: {', '.join(unsaved)}" if unsaved and where == "the model" else ""
        return failed(
            f"after loading, {where} is not as it was saved: the weights differ by {differs:.2g}{named}",
            unsaved=unsaved,
            **numbers,
        )


def _saved(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> tuple[dict[str, Any], dict[str, Any]]:
    return copy.deepcopy(dict(model.state_dict())), copy.deepcopy(optimizer.state_dict())


def _load(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, saved: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    try:
        model.load_state_dict(copy.deepcopy(saved[0]))
        optimizer.load_state_dict(copy.deepcopy(saved[1]))
    except Exception as error:  # a user's own state_dict
        said = " ".join(str(error).split())[:160]
        raise CannotError(f"what was saved cannot be loaded: {type(error).__name__}: {said}") from None


def _values(model: torch.nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def _unsaved(model: torch.nn.Module, middle: Point) -> list[str]:
    """Buffers and plain numbers of modules that the state dictionary leaves out."""
    stored = set(model.state_dict().keys())
    found = [name for name, _ in model.named_buffers() if name not in stored]
    names = {id(module): path for path, module in model.named_modules()}
    for module, own in middle.attributes:
        for name, value in own.items():
            moving = isinstance(value, (Tensor, float, int)) and not isinstance(value, bool)
            if moving and not name.startswith("_") and name not in _SETTINGS:
                found.append(f"{names.get(id(module), '')}.{name}".strip("."))
    return found[:NAMED_MAX]


_SETTINGS = frozenset(
    {
        *("in_features", "out_features", "in_channels", "out_channels", "num_features", "eps", "momentum", "p"),
        *("num_embeddings", "embedding_dim", "padding_idx", "groups", "num_heads", "head_dim", "embed_dim", "dropout"),
        *(
            "normalized_shape",
            "kernel_size",
            "stride",
            "padding",
            "dilation",
            "max_norm",
            "norm_type",
            "negative_slope",
        ),
    }
)
"""Plain-number settings of torch's own modules, which nothing changes."""
