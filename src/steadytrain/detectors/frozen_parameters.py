"""Parameters that should learn do not."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from steadytrain.core.model import GRADIENT_ABSENT, Cells, FloatArray, Severity, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Aim, Detector
from steadytrain.statistics.bias_names import weight_beside
from steadytrain.statistics.layer_names import experts_among
from steadytrain.statistics.rolling_baseline import holds_start, stride_of
from steadytrain.statistics.script_rows import script_rows
from steadytrain.statistics.table_episodes import (
    APART_STEPS,
    Episode,
    apart,
    applied_cells,
    episodes,
    is_coarse,
    stretches,
)

UNDER_NO_GRAD, AMONG_OUTPUTS = 2.0, 5.0
CUT = {
    1.0: "its output is detached or not used",
    UNDER_NO_GRAD: "it runs under no_grad",
    3.0: "it detaches its output itself",
    4.0: "it runs in a reentrant checkpoint of which no input needs a gradient (use_reentrant=False)",
    AMONG_OUTPUTS: "the model returns its output, and no loss uses it",
}
"""Values of the measure ``cut-off`` of the table ``script``, and what they say."""

ZERO_WEIGHTS = "zero_weights"
"""The number of a symptom whose parameters are zero: 1."""


@final
@dataclass(frozen=True)
class FrozenParameters(Detector):
    """Parameters in the optimizer do not change: no gradient, a gradient of zero, or no update.

    Means:
        For 100 steps (or the first 16 of the run, if there was no gradient at all) these parameters had no gradient, a
        gradient of exactly zero, or an update of exactly zero, while others learned. Only parameters in the optimizer
        count, so a frozen base that was left out does not; nor, in a watched run, does a parameter with `requires_grad`
        False. If more than half of them had no gradient from the start, the frozen base was passed to the optimizer by
        design: a note. Poolers that no loss uses are a note, too, and biases whose gradient was zero from the start
        while their weights learned: the loss is a difference of outputs (a critic), or is normalised. "critical" means
        that most of the model stopped after it had learned. Weights whose gradient was from the start no more than the
        rounding of 32 bits beside the largest one learn nothing either, whatever Adam makes of it.

    Causes:
        - a part of the model that the forward pass does not use, or whose output is not used
        - `detach`, `no_grad`, `.data` or an integer conversion between these parameters and the loss
        - a layer above that is dead (see dead-units), or a gate, mask or scale of zero
        - a gate that is divided by its own sum: with one expert chosen it is always 1, and its router learns nothing
        - an optimizer made before parameters were replaced, or before the model was moved or wrapped
        - a learning rate of zero in their parameter group
        - weights that begin at zero under an optimizer that scales updates by their norm (LAMB, LARS)

    Next:
        1. No gradient at all: follow the named module in `forward`; is it called, is its output used?
           Checkpoints behind a frozen embedding need `use_reentrant=False`.
        2. A gradient of zero: the cut is just below the first layer, towards the loss, that still has one.
        3. A gradient, but no update: compare the parameters of the optimizer's groups with `model.parameters()`.
           If they are zero, the trust ratio of LAMB or LARS must be 1 where the norm is 0.
        4. Meant to be frozen: set `requires_grad` to False and leave them out of the optimizer.
    """

    needs: ClassVar[tuple[str, ...]] = (
        *("gradient_norms", "tensors.gradient_norm", "tensors.update_norm"),
        "script.value",
    )
    waits_for: ClassVar[str] = "cut_steps"
    aim: ClassVar[Aim] = "progress"
    hasty: ClassVar[bool] = True

    cut_steps: int = threshold(
        8, "first steps in each of which a module was called, and no backward reached it, after which it is named"
    )

    never_steps: int = threshold(
        16, "first steps of a run after which a parameter that had no gradient in any of them is reported"
    )
    frozen_steps: int = threshold(100, "steps without any change; fewer may be a branch that is used only sometimes")
    sustained_readings: int = threshold(3, "readings in these steps, 16 steps apart or more, that must all agree")
    design_share: float = threshold(
        0.5,
        "share of parameters without a gradient from the start above which it is by design: in "
        "transfer learning the base is most of the model. Chosen",
    )
    gradient_share: float = threshold(
        1e-4,
        "share of the median gradient norm below which a gradient is rounding, as of a bias before a normalisation",
    )

    rounding_share: float = threshold(
        1e-6, "share of the largest gradient norm of a step, below which a gradient is its rounding: 32 bits have 6e-8"
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        cut = [*self._cut_off(window), *self._rounding_alone(window)]
        gone = {name for one in cut for name in one.tensors}
        found = [*self._without_gradient(window), *self._without_update(window)] or self._never(window)
        found = [_of_uncalled(window, one, gone) for one in found]
        return tuple(sorted([*cut, *(one for one in found if not gone.issuperset(one.tensors))], key=_first_step))

    def _cut_off(self, window: Window) -> list[Symptom]:
        """Modules that the script calls in every step in training mode, and that no backward reaches."""
        steps, norms = window.steps, window.gradient_norms
        rows = script_rows(window, "cut-off")
        if not rows or len(steps) < self.cut_steps or not _from_the_start(window):
            return []
        absent = (norms == GRADIENT_ABSENT).all(axis=0) & ~experts_among(window.tensor_names)
        gone = [name for name, none in zip(window.tensor_names, absent, strict=True) if none]
        alive = [name for name, none in zip(window.tensor_names, absent, strict=True) if not none]
        cut, names = [], []
        for row in rows:
            inside = [name for name in gone if name.startswith(f"{row.place}.")]
            if inside and not any(name.startswith(f"{row.place}.") for name in alive):
                cut.append(row)
                names += inside
        if not cut:
            return []
        meant = all(row.last == UNDER_NO_GRAD for row in cut) and len(gone) > self.design_share * len(absent)
        meant = meant or all("pooler" in row.place for row in cut) or all(_has_sibling(name, alive) for name in names)
        meant = meant or all(row.last == AMONG_OUTPUTS for row in cut)
        more = f" (and {len(cut) - 1} more)" if len(cut) > 1 else ""
        return [
            Symptom(
                name="frozen-parameters",
                severity="note" if meant else "warning",
                first_step=int(steps[0]),
                last_step=int(steps[-1]),
                message=f"{cut[0].place}{more} is called in every step and never gets a gradient: {CUT[cut[0].last]}",
                signals=("gradient_norms", "script.value"),
                tensors=tuple(names),
                numbers={"tensors": float(len(names)), "tensors_measured": float(len(absent)), "cut": cut[0].last},
            )
        ]

    def _rounding_alone(self, window: Window) -> list[Symptom]:
        """Weights whose gradient was the rounding of others in every step since the first. A bias may be so by right:
        before a normalisation, or in the keys of attention."""
        norms = window.gradient_norms
        if len(norms) < self.frozen_steps or not _from_the_start(window):
            return []
        for some in (norms[-1:], norms):  # the newest step alone rules nearly all runs out
            if not np.isfinite(some).all() or not (tiny := self._rounds(some)).any():
                return []
        names = tuple(name for name, so in zip(window.tensor_names, tiny, strict=True) if so and "bias" not in name)
        if not names:
            return []
        most = float(_of_the_largest(norms)[:, tiny].max())
        what = f"a gradient that is rounding, at most {most:.1g} of the largest,"
        return [_since_the_start(window, names, "warning", what, {"rounding_share": most})]

    def _rounds(self, norms: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Which columns of ``norms``, shape ``(steps, tensors)``, are rounding in every step."""
        return np.asarray(((norms > 0.0) & (_of_the_largest(norms) < self.rounding_share)).all(axis=0))

    def _never(self, window: Window) -> list[Symptom]:
        """Parameters without a gradient since the first step of a run that is young.

        One of several parts of a kind may just not have had its turn: a note, until it is ``frozen_steps`` old.
        """
        norms = window.gradient_norms
        if not self.never_steps <= len(norms) < self.frozen_steps or not _from_the_start(window):
            return []
        absent = (norms == GRADIENT_ABSENT).all(axis=0) & ~experts_among(window.tensor_names)
        if not absent.any() or not (norms > 0.0).any():
            return []
        names = tuple(name for name, gone in zip(window.tensor_names, absent, strict=True) if gone)
        alive = [name for name, gone in zip(window.tensor_names, absent, strict=True) if not gone]
        meant = len(names) > self.design_share * len(absent) or all("pooler" in name for name in names)
        severity: Severity = "note" if meant or all(_has_sibling(name, alive) for name in names) else "warning"
        return [_since_the_start(window, names, severity, "no gradient", {})]

    def _without_gradient(self, window: Window) -> list[Symptom]:
        cells = _norms(window)
        if cells is None:
            return []
        still = cells.values <= 0.0  # absent ones are -1
        if not still.any():
            return []
        absent = still & (cells.values == GRADIENT_ABSENT)
        still &= (cells.values > 0.0).any(axis=1, keepdims=True)  # nothing has a gradient: the loss is at rest
        symptoms = []
        for kind, beyond in (("no gradient", absent), ("a gradient of zero", still & ~absent)):
            for episode in self._episodes(window, cells, beyond):
                always = holds_start(window.steps, stride=stride_of(window.steps)) and episode.first == 0
                share = len(episode.rows) / len(cells.rows)
                pooler = all("pooler" in row for row in episode.rows)
                severity: Severity = "critical" if share > self.design_share and not always else "warning"
                if kind == "no gradient" and episode.first == 0 and not beyond[-1, episode.positions].any():
                    continue  # frozen at first and trained later: unfrozen by design
                if kind == "a gradient of zero" and episode.first == 0 and _only_biases(cells, episode):
                    severity = "note"  # the loss is the same whatever they are: a difference, or a norm after them
                if kind == "no gradient" and (pooler or (share > self.design_share and episode.first == 0)):
                    severity = "note"
                symptoms.append(_symptom(cells, episode, severity, kind, "gradient_norms"))
        return symptoms

    def _without_update(self, window: Window) -> list[Symptom]:
        cells = applied_cells(window, "tensors", "update_norm", apart_steps=APART_STEPS)
        if cells is None or not (cells.values == 0.0).any():
            return []
        norms = applied_cells(window, "tensors", "gradient_norm", apart_steps=APART_STEPS)
        if norms is None or len(cells) != len(norms):
            return []
        rounding = self.gradient_share * np.nanmedian(norms.values, axis=1, keepdims=True)
        others = (cells.values > 0.0).any(axis=1, keepdims=True)
        zeros = _zeros(window, cells)
        rate = window.applied("learning_rate")
        if not len(rate) or rate.values.all():
            others = others | zeros  # the optimizer moves nothing, but it is not told to rest
        beyond = (cells.values == 0.0) & (norms.values > rounding) & others
        if not beyond.any() or is_coarse(window):  # lost-updates reports rounding
            return []
        # The rate is that of the first group: at zero it is set for a part, or zero-learning-rate reports it.
        severity: Severity = "note" if len(rate) and not rate.values.any() else "warning"
        found = []
        for episode in self._episodes(window, cells, beyond):
            one = _symptom(cells, episode, severity, "a gradient, but no update", "tensors.update_norm")
            found.append(_of_zeros(one) if zeros[:, episode.positions].any(axis=0).all() else one)
        return found

    def _episodes(self, window: Window, cells: Cells, beyond: NDArray[np.bool_]) -> list[Episode]:
        """Episodes of the rows that were still for long enough."""
        beyond = beyond & ~experts_among(cells.rows)
        kept = np.zeros_like(beyond)
        for row in np.flatnonzero(beyond.sum(axis=0) >= self.sustained_readings):
            measured = np.flatnonzero(~np.isnan(cells.values[:, row]))
            for start, stop in stretches(beyond[measured, row]):
                first, last = measured[start], measured[stop - 1]
                if (
                    stop - start >= self.sustained_readings
                    and cells.steps[last] - cells.steps[first] >= self.frozen_steps - APART_STEPS
                ):
                    kept[first : last + 1, row] = True
        return episodes(window, cells, kept)


def _of_uncalled(window: Window, symptom: Symptom, cut: Container[str]) -> Symptom:
    """A note, if the classes of the model make the modules of these parameters and never call them; beside those that
    were ``cut`` off, which are named for themselves."""
    uncalled = [row.place for row in script_rows(window, "uncalled")]
    left = [name for name in symptom.tensors if name not in cut]
    if not uncalled or not all(any(name.startswith(f"{one}.") for one in uncalled) for name in left):
        return symptom
    return replace(symptom, severity="note", message=f"{symptom.message}; {uncalled[0]} is made and never called")


def _zeros(window: Window, cells: Cells) -> NDArray[np.bool_]:
    """Which parameters consist of zeros in each row of ``cells``; none of one that has other values later."""
    weights = applied_cells(window, "tensors", "weight_norm", apart_steps=APART_STEPS)
    if weights is None or weights.values.shape != cells.values.shape or weights.rows != cells.rows:
        return np.zeros(cells.values.shape, np.bool_)
    moved = (np.nan_to_num(weights.values, nan=0.0) != 0.0).any(axis=0, keepdims=True)
    return np.asarray((weights.values == 0.0) & ~moved)


def _of_zeros(symptom: Symptom) -> Symptom:
    """The symptom of weights that stay zero: an optimizer that scales an update by their norm never moves them."""
    return replace(
        symptom,
        message=f"{symptom.message}; they are zero: an update in proportion to their norm stays zero, or the rate is 0",
        numbers={**symptom.numbers, ZERO_WEIGHTS: 1.0},
    )


def _from_the_start(window: Window) -> bool:
    """Whether the gradient norms of every step since the first one of the run are there."""
    steps = window.steps
    measured = bool(window.tensor_names) and len(window.gradient_norms) == len(steps)
    return measured and holds_start(steps, stride=stride_of(steps))


def _of_the_largest(norms: NDArray[np.float32]) -> NDArray[np.float32]:
    """``norms``, shape ``(steps, tensors)``, as a share of the largest of each step."""
    shares: NDArray[np.float32] = norms / np.maximum(norms.max(axis=1, keepdims=True), np.finfo(norms.dtype).tiny)
    return shares


def _since_the_start(
    window: Window, names: tuple[str, ...], severity: Severity, what: str, numbers: Mapping[str, float]
) -> Symptom:
    """The symptom of parameters that had ``what`` in every step of the run so far."""
    first, last = int(window.steps[0]), int(window.steps[-1])
    which = names[0] if len(names) == 1 else f"{len(names)} parameters ({names[0]} first)"
    counts = {"tensors": float(len(names)), "tensors_measured": float(len(window.tensor_names))}
    return Symptom(
        name="frozen-parameters",
        severity=severity,
        first_step=first,
        last_step=last,
        message=f"{which} had {what} from step {first} to {last}, while others learned",
        signals=("gradient_norms",),
        tensors=names,
        numbers={**counts, **numbers},
    )


def _has_sibling(name: str, alive: Sequence[str]) -> bool:
    """Whether a part of the same kind lives: a name that differs in one place inside, or in a number."""
    parts = name.split(".")
    for other in alive:
        others = other.split(".")
        apart_at = [at for at, (one, two) in enumerate(zip(parts, others, strict=False)) if one != two]
        if len(parts) == len(others) and len(apart_at) == 1:
            (at,) = apart_at
            if 0 < at < len(parts) - 1 or (parts[at].isdigit() and others[at].isdigit()):
                return True
    return False


def _only_biases(cells: Cells, episode: Episode) -> bool:
    """Whether the rows are biases of modules whose weights have gradients."""
    rows = [cells.rows[at] for at in episode.positions]
    weights = {weight_beside(row, cells.rows) for row in rows if row.rpartition(".")[2] == "bias"}
    learning = {row for at, row in enumerate(cells.rows) if row in weights and (cells.values[:, at] > 0.0).any()}
    return len(weights) == len(rows) and learning == weights


def _norms(window: Window) -> Cells | None:
    """Gradient norms, ``GRADIENT_ABSENT`` where a parameter has none: of every step where there are, or of readings."""
    if window.tensor_names and len(window.gradient_norms) == len(window):
        if not (window.gradient_norms <= 0.0).any():
            return None  # every gradient moved at every step
        applied = ~(window.skipped | window.refused)
        steps, norms = window.steps[applied], window.gradient_norms[applied]
        if not len(steps):
            return None
        starts = apart(steps, APART_STEPS)  # the largest of each stretch: a branch that is used now and then is alive
        return Cells(steps[starts], window.tensor_names, np.maximum.reduceat(norms, starts, axis=0).astype(np.float64))
    cells = applied_cells(window, "tensors", "gradient_norm", apart_steps=APART_STEPS)
    weights = applied_cells(window, "tensors", "weight_norm", apart_steps=APART_STEPS)
    if cells is None or weights is None or len(cells) != len(weights):
        return cells
    values: FloatArray = np.where(np.isnan(cells.values) & ~np.isnan(weights.values), GRADIENT_ABSENT, cells.values)
    return Cells(cells.steps, cells.rows, values)


def _symptom(cells: Cells, episode: Episode, severity: Severity, kind: str, signal: str) -> Symptom:
    here = cells.values[(cells.steps >= episode.first_step) & (cells.steps <= episode.last_step)]
    beside = ", while others learned" if (here > 0.0).any() else ""
    return Symptom(
        name="frozen-parameters",
        severity=severity,
        first_step=episode.first_step,
        last_step=episode.last_step,
        message=f"{episode.who('parameters')} had {kind} {episode.when()}{beside}",
        signals=(signal,),
        tensors=episode.names,
        numbers={"tensors": float(len(episode.rows)), "tensors_measured": float(len(cells.rows))},
    )


def _first_step(symptom: Symptom) -> int:
    return symptom.first_step
