"""The message of an incident on the terminal of the run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from steadytrain.core.incident import BATCH_IS_BAD, Action, BadTensor, Finding, Located, OperandRange, Samples
from steadytrain.core.interactive import typed_into
from steadytrain.core.own_command import own_command
from steadytrain.report.action_words import left_course
from steadytrain.storage.run_search import short_name

INPUTS_SHOWN = 4
TENSORS_SHOWN = 3
SAMPLES_SHOWN = 3
NOT_TRACED = "not traced yet, `steadytrain locate` looks for it"


UNTOUCHED = "weights, optimizer state and buffers are as they were before the step"
UNTOUCHED_AT_REST = "weights and optimizer state are as they were before the step; buffers are as its forward left them"
PARTLY_APPLIED = "the optimizer had already changed the weights within this step: finite, but the update is incomplete"


def not_recorded(rested: tuple[int, int], *, batch_kept: bool) -> str:
    """The text about a step without a recording: the run rested from the first of these steps to the second."""
    first, step = rested
    kept, lost = (" and the batch", "random state") if batch_kept else ("", "batch and random state")
    return (
        f"  not recorded         the run rested since step {first:,}: the bundle has the weights{kept} of step "
        f"{step:,} but not its {lost}, and the steps before it cannot be replayed; --every-step records all"
    )


def damaged_state(
    bad: Sequence[str], step: int, since: str | None, good: Path | None, rested: tuple[int, int] | None = None
) -> str:
    """The text about weights that held NaN or Inf even before the refused update of ``step``; ``since`` which event, if
    that is known."""
    names = ", ".join(bad[:TENSORS_SHOWN]) + (
        f" (+{len(bad) - TENSORS_SHOWN} more)" if len(bad) > TENSORS_SHOWN else ""
    )
    earlier = f"since an update before step {step}" if step > 1 else "from the start"
    when = f"since {since}" if since is not None else earlier
    if rested is not None and rested[0] < step:
        when = f"since an update of the steps {rested[0]} to {step - 1}, which were not recorded because the run rested"
    kept = f"the last good state that is kept is {good}" if good is not None else "no good state is kept"
    return f"this update was not applied, but {names} held NaN or Inf already, {when}; {kept}"


def off_course(left_at: int, kept: Path | None) -> str:
    """The text about weights before a refused update, where the loss had left its course by then."""
    return f"this update was refused, but {left_course(left_at, kept.parent.name if kept is not None else '')}"


def stop_message(
    step: int,
    reason: str,
    bad: Sequence[BadTensor],
    finding: Finding,
    state: str,
    path: Path | None,
    samples: Sequence[Samples] = (),
) -> str:
    """The verdict first, then where, then what to do next."""
    return _message(f"STOPPED before the update of step {step}: {reason}.", bad, finding, state, path, samples)


def skip_message(
    step: int,
    reason: str,
    in_a_row: tuple[int, int],
    state: str,
    path: Path | None,
    samples: Sequence[Samples],
) -> str:
    """A skipped update. ``in_a_row``: how many were skipped one after the other, and how many may be, 0 if the
    run does not stop then."""
    count, most = in_a_row
    lines = [f"SKIPPED the update of step {step}: {reason}.", *sample_lines(samples)]
    if count > 1:
        lines.append(f"  {count} in a row" + (f"; the run stops after {most}" if most else ""))
    lines.append(f"  {state}; the training goes on")
    if path is not None:
        lines.append(f"  bundle               {path}")
    return "\n".join(lines)


def intervention_message(step: int, why: str, actions: Sequence[Action]) -> str:
    """What was done between two steps: the reason first, then a line for each action."""
    return "\n".join([f"INTERVENED after step {step}: {why}", *(f"  {_action_line(action)}" for action in actions)])


def _action_line(action: Action) -> str:
    pairs = ((name.replace("_", " "), action.before.get(name), value) for name, value in action.after.items())
    numbers = ", ".join(f"{name} {_change(old, new)}" for name, old, new in pairs)
    match action.what:
        case "rolled-back":
            return f"rolled back to the state after step {action.after.get('step', 0):.0f}; the data goes on"
        case "applied":
            return f"{action.intervention}: {numbers}" if numbers else action.intervention
        case "not-applied":
            return f"{action.intervention} could not be made: {action.reason.rpartition('not made: ')[2]}"
        case _:
            return f"{action.intervention} taken back: {action.reason}"


def _change(old: float | None, new: float) -> str:
    return f"{new:.4g}" if old is None else f"{old:.4g} to {new:.4g}"


def let_go_message(
    step: int, reason: str, bad: Sequence[BadTensor], finding: Finding, path: Path, samples: Sequence[Samples]
) -> str:
    """The same for a batch for which the script itself makes no update."""
    return _message(f"NO UPDATE at step {step}, by the script itself: {reason}.", bad, finding, None, path, samples)


def _message(
    verdict: str,
    bad: Sequence[BadTensor],
    finding: Finding,
    state: str | None,
    path: Path | None,
    samples: Sequence[Samples],
) -> str:
    lines = [verdict, *finding_lines(finding, samples), *sample_lines(samples)]
    if bad:
        names = ", ".join(tensor.name for tensor in bad[:TENSORS_SHOWN])
        more = f" (+{len(bad) - TENSORS_SHOWN} more)" if len(bad) > TENSORS_SHOWN else ""
        lines.append(f"  bad gradients        {names}{more}")
    if state is not None:
        lines.append(f"  {state}")
    if path is not None:
        lines.append(f"  bundle               {path}")
        if typed_into() is None:  # in a notebook what ends the cell says which call comes next
            lines.append(f"  next                 {own_command()} show {short_name(path)}")
    else:
        lines.append("  bundle               none could be written; see the warning above")
    return "\n".join(lines)


def finding_lines(finding: Finding, samples: Sequence[Samples] = ()) -> list[str]:
    """The first bad operation with its place and inputs, or the reason why none is named."""
    located = finding.located
    if finding.is_half_traced(samples):
        if finding.came_in.startswith(BATCH_IS_BAD):
            return [f"  first bad operation  none in the model: {finding.why}; what made it is {NOT_TRACED}"]
        return [f"  first bad operation  {NOT_TRACED}: {finding.why}"]
    if located is None:
        return [f"  first bad operation  not named: {finding.why}"]
    where = f"{located.file}:{located.line}" if located.file else "unknown"
    return [
        f"  first bad operation  {located.operation_said} made {located.produced} in {located.phase}",
        f"  layer                {_layer(located)}",
        f"  line                 {where}" + (f"   {located.code}" if located.code else ""),
        *(f"  input                {operand_text(operand)}" for operand in located.inputs[:INPUTS_SHOWN]),
    ]


def sample_lines(samples: Sequence[Samples]) -> list[str]:
    """The samples with non-finite values, by their index in the data set."""
    bad = [(one, row) for one in samples for row in one.nonfinite_rows]
    lines = [
        f"  bad sample           {one.named(row)} holds NaN or Inf{_in_fields(one)} (row {row} of the batch)"
        for one, row in bad[:SAMPLES_SHOWN]
    ]
    if len(bad) > SAMPLES_SHOWN:
        lines.append(f"                       and {len(bad) - SAMPLES_SHOWN} more")
    later = [f"row {row}" for one in samples for row in one.later_rows]
    if later:
        more = f" and {len(later) - SAMPLES_SHOWN} more" if len(later) > SAMPLES_SHOWN else ""
        lines.append(f"  came in after the loader  NaN or Inf in {', '.join(later[:SAMPLES_SHOWN])}{more} of the batch")
        changed = dict.fromkeys(line for one in samples for line in one.later_lines)
        lines += [f"  changed on the way   {line}" for line in list(changed)[:SAMPLES_SHOWN]]
    return lines


def _in_fields(samples: Samples) -> str:
    return f" in {', '.join(map(repr, samples.nonfinite_fields))}" if samples.nonfinite_fields else ""


def operand_text(operand: OperandRange) -> str:
    """One input of an operation, in one line."""
    return f"{operand.name}{' =' if operand.text is not None else ':'} {operand.summary()}"


def _layer(located: Located) -> str:
    if located.module:
        return located.module
    return "the model itself" if located.phase == "forward" else "(outside the model)"
