"""The steps that consist of trials: precision, rate, safety nets, architecture. Pure: from evidence."""

from __future__ import annotations

from collections.abc import Mapping

from steadytrain.experiments.specs import NO_TIME_LEFT
from steadytrain.method.evidence import Evidence
from steadytrain.method.step_result import (
    Status,
    StepResult,
    Taken,
    cause_line,
    counted,
    found_step,
    is_sick,
    ran_in,
    remedy,
    result_of,
    short,
    trial_line,
)
from steadytrain.method.steps import USUAL, Step, step_called, step_of_trial
from steadytrain.method.ticks import in_float32, named

NO_TIME = "no time was left"


def tried_step(step: Step, evidence: Evidence, taken: Taken) -> StepResult:
    trials, where = ran_in(step, evidence), named(evidence.source)
    facts = _settings(step, evidence)
    here = found_step(evidence) == step.name
    if step.name == "precision" and not trials and in_float32(evidence):
        why = "parameters, gradients and logits are float32, without autocast"
        return result_of(step, "skipped", why, "", facts, "", f"steadytrain trial {where} all-safe")
    if not trials and not here:
        why, possible = _why_untried(step, evidence, taken)
        status: Status = "skipped" if possible else "not possible"
        return result_of(step, status, why, "", facts, "", _trial_command(step, evidence))
    helps = [one.trial for one in trials if one.effect == "removed"]
    eases = [one.trial for one in trials if one.effect in ("delayed", "weakened")]
    if here:
        means = cause_line(evidence)
    elif helps:
        means = f"{', '.join(helps)} helps, but that alone names no cause"
    elif eases:
        means = f"{', '.join(eases)} only eases it: not the cause"
    else:
        means = "nothing here changes it: look elsewhere"
    command = (remedy(evidence) if here else None) or _trial_command(step, evidence)
    command = f"steadytrain verify {where} --with {helps[0]}" if helps else command
    did = counted(trials) if trials else "read the records"
    return result_of(step, "found" if here else "done", "", did, (*map(trial_line, trials), *facts), means, command)


def _why_untried(step: Step, evidence: Evidence, taken: Taken) -> tuple[str, bool]:
    """Why no trial of the step ran, and whether one could."""
    if not is_sick(evidence):
        return "no symptom above a note, so there is nothing for a change to remove", True
    refused = [one for one in evidence.tried.values() if not one.ran and step_of_trial(one.trial) == step.name]
    lacking = next((one for one in refused if NO_TIME_LEFT not in one.why), None)
    if "usual" in taken.left_out and step.name in USUAL:
        return taken.left_out["usual"], True
    if evidence.answer is not None and evidence.answer.status == "confirmed":
        at = step_called(found_step(evidence) or "isolate").number
        return f"{evidence.answer.verdict} is confirmed in step {at}{_takes(evidence)}", True
    if lacking is not None:
        return f"{lacking.trial}: {lacking.why}", False
    if "diagnose" in taken.left_out:
        return taken.left_out["diagnose"], True
    return f"no trial of this step could tell the remaining causes apart{_takes(evidence)}", True


def _takes(evidence: Evidence) -> str:
    return f"; a trial takes about {evidence.step_seconds:.0f} s" if evidence.step_seconds else ""


def _trial_command(step: Step, evidence: Evidence) -> str:
    missing = [name for name in USUAL.get(step.name, ()) if name not in evidence.tried]
    return " ".join(("steadytrain trial", named(evidence.source), *missing))


_SETTINGS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "precision": (("autocast_dtype", "autocast"), ("scaler_scale", "loss scale"), ("half_peak", "peak over 65504")),
    "rate": (("learning_rate", "rate"), ("scheduler", "scheduler"), ("warmup_seen", "warm-up seen")),
    "safety": (
        *(("clipped", "clipped"), ("clip_value", "at"), ("weight_decay", "weight decay"), ("epsilon", "epsilon")),
        ("betas", "betas"),
    ),
    "architecture": (
        ("fully_masked_rows", "fully masked rows"),
        ("attention_logit_largest", "largest attention logit"),
    ),
    "distributed": (("ranks", "ranks"), ("workers", "loader workers")),
}


_ONLY_IF_ANY = ("fully_masked_rows", "half_peak", "workers")


def _settings(step: Step, evidence: Evidence) -> tuple[str, ...]:
    """The settings that a survey saw, in one line."""
    known = [
        (name, words, evidence.facts[name]) for name, words in _SETTINGS.get(step.name, ()) if name in evidence.facts
    ]
    entries = [(words, value) for name, words, value in known if value or name not in _ONLY_IF_ANY]
    told = ", ".join(f"{words} {short(value)}" for words, value in entries)
    return (f"settings: {told}",) if told else ()
