"""What `locate` measured besides the first bad operation, as text: float64, activation maxima, backends."""

from __future__ import annotations

from collections.abc import Sequence

from steadytrain.report.wording import Fact, clean, number
from steadytrain.storage.step_look import ActivationMaxima, Backends, ModuleMaximum, SecondOpinion, StepLook

RUNGS_SHOWN_MAX = 10
NEAR_BITS = 4.0
"""A module with less headroom (in bits) is shown, besides those next to the first that overflowed."""

TIGHT_BITS = 16.0
"""A module with more headroom does not show it; nearly every float32 and bfloat16 module has more."""

NOTES_SHOWN_MAX = 4


def look_facts(look: StepLook) -> list[Fact]:
    """Label and text of each line. The label is "" if a line continues the one before."""
    facts: list[Fact] = []
    if look.opinion is not None:
        facts += _labelled("in float64", _opinion(look.opinion))
    if look.ladder is not None:
        facts += _labelled("largest outputs", _ladder(look.ladder))
    if look.backends is not None:
        facts += _labelled("compiled", _backends(look.backends))
    return facts + _labelled("note", [clean(note) for note in look.notes[:NOTES_SHOWN_MAX]])


def shown_rungs(ladder: ActivationMaxima) -> tuple[ModuleMaximum, ...]:
    """The modules to show: those around the first that overflowed and those near the limit of their dtype, else the
    nearest.
    """
    rungs = ladder.rungs
    broke = next((at for at, rung in enumerate(rungs) if rung.broke), None)
    around = set() if broke is None else set(range(max(0, broke - 3), min(len(rungs), broke + 2)))
    bits = {at: rung.headroom_bits for at, rung in enumerate(rungs) if rung.headroom_bits is not None}
    nearest = sorted(bits, key=lambda at: bits[at] or 0.0)
    near = [at for at in nearest if (bits[at] or 0.0) < NEAR_BITS] or nearest[:1]
    chosen = sorted([*around, *[at for at in near if at not in around][: RUNGS_SHOWN_MAX - len(around)]])
    return tuple(rungs[at] for at in chosen)


def rung_text(rung: ModuleMaximum) -> str:
    """One module as text: ``float16 3.1e+04 -> 5.9e+04 -> inf, limit 65504, 0.2 binary digits left``."""
    values = " -> ".join("-" if value is None else f"{value:.3g}" for value in rung.largest)
    bits = rung.headroom_bits
    tight = bits is not None and bits < TIGHT_BITS
    left = f", {bits:.1f} binary digits left" + (" before" if rung.broke else "") if tight else ""
    return f"{rung.dtype} {values}, limit {rung.limit:.5g}{left}"


def _ladder(ladder: ActivationMaxima) -> list[str]:
    first, last = ladder.steps[0], ladder.steps[-1]
    steps = f"step {last}" if first == last else f"steps {first} to {last}"
    shown = shown_rungs(ladder)
    width = max((len(_name(rung)) for rung in shown), default=0)
    lines = [f"{steps}, {len(shown)} of {len(ladder.rungs)} modules, in the order of the forward"]
    return lines + [f"{_name(rung):<{width}}  {rung_text(rung)}" for rung in shown]


def _name(rung: ModuleMaximum) -> str:
    return clean(rung.module or f"(the model, {rung.kind})")


def _opinion(opinion: SecondOpinion) -> list[str]:
    lines = [clean(opinion.text)]
    if opinion.loss is not None and opinion.loss_float64 is not None:
        error = opinion.relative_error
        apart = f", relative error {error:.1e}" if error is not None else ""
        lines.append(f"loss {number(opinion.loss)}, in float64 {number(opinion.loss_float64)}{apart}")
    if opinion.bad_gradients or opinion.bad_gradients_float64:
        lines.append(
            f"tensors that are not finite: {opinion.bad_gradients}, in float64 {opinion.bad_gradients_float64}"
        )
    if opinion.not_cast:
        lines.append(f"taken as the run made them: {clean(', '.join(opinion.not_cast))}")
    return lines


def _backends(backends: Backends) -> list[str]:
    lines = [clean(backends.why), f"{'':<10}  {'loss':>12}  {'gradient':>12}  first tensor that differs"]
    for row in backends.rows:
        loss = "-" if row.loss is None else f"{row.loss:.6g}"
        norm = "-" if row.gradient_norm is None else f"{row.gradient_norm:.6g}"
        first = row.failed or row.first_difference or ("" if row.backend == "eager" else "none")
        lines.append(clean(f"{row.backend:<10}  {loss:>12}  {norm:>12}  {first}"))
    return lines + [clean(note) for note in backends.notes]


def _labelled(label: str, lines: Sequence[str]) -> list[Fact]:
    return [Fact(label if at == 0 else "", line) for at, line in enumerate(lines)]
