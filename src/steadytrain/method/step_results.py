"""The ten steps as results: what was done, what it showed, what it means, and the next command. Pure: from evidence.

A step is `found` only where the fault itself lies in it, not where a change also helps (a lower rate helps nearly
everything). Not here: steps that consist of trials (``tried_steps``), and running anything (``walk``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from steadytrain.core.incident import BATCH_IS_BAD
from steadytrain.diagnosis.row_signs import bad_rows
from steadytrain.experiments.facts import LOADED
from steadytrain.experiments.specs import axis_word
from steadytrain.method.evidence import Evidence
from steadytrain.method.step_result import (
    SHOWN_MAX,
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
from steadytrain.method.steps import STEPS, Step
from steadytrain.method.ticks import DATA_CHECKS, named
from steadytrain.method.tried_steps import tried_step

SYMPTOMS_MAX = 3


DATA_SYMPTOMS = frozenset(
    (
        *("constant-targets", "inverted-mask", "misplaced-labels", "repeated-batch", "repeated-order", "sorted-labels"),
        *("rows-without-labels", "supervised-padding", "unscaled-inputs", "visible-labels", "worker-duplicates"),
    )
)


_MEANINGS: Mapping[str, str] = {
    "again": "the fault lies in the recorded state, batch and code, so every test below counts",
    "gone": "the symptom depends on something that was not recorded: chance, hardware or a race",
    "differs": "something is nondeterministic; make the run repeat before you trust a comparison",
    "exact": "the run repeats, so a comparison of two versions means something",
}


def step_results(evidence: Evidence, taken: Taken) -> tuple[StepResult, ...]:
    """The ten steps in their order."""
    return tuple(_DESCRIBED.get(step.name, tried_step)(step, evidence, taken) for step in STEPS)


def _reproduce(step: Step, evidence: Evidence, taken: Taken) -> StepResult:
    where, replay = named(evidence.source), evidence.commands.get("replay")
    seeds = _seeds(evidence)
    command = f"steadytrain replay {where} --times 3"
    if replay is not None and replay.done:
        what, effect = replay.what, replay.effect
    elif evidence.answer is not None and evidence.answer.replay in ("exact", "not exact"):
        what, effect = evidence.answer.replay_note, "again" if evidence.answer.replay == "exact" else "differs"
    else:
        why = replay.what if replay is not None else taken.left_out.get("replay", "not replayed yet")
        status: Status = "not possible" if replay is not None else "skipped"
        seeded = f"steadytrain run --seed 0 --deterministic --keep-rewind {taken.script}"
        return result_of(step, status, why, "", seeds, "", command if status == "skipped" else seeded)
    status = "found" if found_step(evidence) == step.name else "done"
    if effect == "differs":
        command = f"steadytrain run --seed 0 --deterministic {taken.script}"
    return result_of(
        step, status, "", "replayed the recorded steps", (what, *seeds), _MEANINGS.get(effect, ""), command
    )


def _seeds(evidence: Evidence) -> tuple[str, ...]:
    entry = evidence.run.facts.get("randomness") if evidence.run is not None else None
    if not isinstance(entry, dict) or not isinstance(entry.get("seeded"), bool):
        return ()
    if entry["seeded"]:
        return (f"torch was seeded with {entry.get('torch_seed')}",)
    return ("no seed was set: another run draws other numbers",)


def _data(step: Step, evidence: Evidence, taken: Taken) -> StepResult:
    checks = [one for one in evidence.preflight.get("checks", ()) if one.get("name") in DATA_CHECKS]
    failed = [f"{one['name']}: {one.get('message', '')}" for one in checks if one.get("status") in ("fail", "warn")]
    ran = [one for one in checks if one.get("status") != "not-run"]
    tests = [one for name, one in evidence.commands.items() if name.startswith("check-data ")]
    surveyed = evidence.facts.get("surveyed_steps")
    trials = ran_in(step, evidence)
    did = [f"preflight: {len(ran)} checks of batches"] if ran else []
    did += [one.command for one in tests]
    did += [f"looked at the batches of {surveyed} recorded steps"] if surveyed else []
    did += [counted(trials)] if trials else []
    seen = [*_damaged(evidence), *failed]
    shown = [
        *(_rows(evidence) if found_step(evidence) == step.name else []),
        *seen,
        *(f"{one.command}: {one.what}" for one in tests),
        *map(trial_line, trials),
    ]
    run = named(evidence.run.path if evidence.run is not None else evidence.source)
    command = f"steadytrain check-data PATH --keep-with {run}"
    if not did and not seen:
        why = taken.left_out.get("diagnose", "no batch was looked at yet")
        return result_of(step, "skipped", why, "", (), "", command)
    here = found_step(evidence) == step.name
    found = here or bool(_damaged(evidence))
    means = cause_line(evidence) if here else "the data are damaged; read these rows first" if found else ""
    means = means or ("a check found something; read it before you tune" if failed else "nothing points to the data")
    if here:
        command = remedy(evidence) or command
    return result_of(
        step, "found" if found else "done", "", "; ".join(did) or "read the records", shown, means, command
    )


def _damaged(evidence: Evidence) -> list[str]:
    """What is wrong with batches whatever the model is."""
    facts, lines, loaded_so = evidence.facts, [], not _made_by_script(evidence)
    if facts.get("batch_nonfinite") and loaded_so:
        lines += [f"a batch holds NaN or Inf: {bad_rows(one)}" for one in facts["batch_nonfinite"][:1]]
    if facts.get("tokens_out_of_range"):
        lines.append(f"{facts['tokens_out_of_range']} ids or labels lie outside of their table")
    if facts.get("labels_leaked"):
        lines.append(f"an input tells the label: {short(facts['labels_leaked'])}")
    if evidence.run is not None:
        named_here = [one for one in evidence.run.symptoms if one.name in DATA_SYMPTOMS and one.severity != "note"]
        lines += [f"{one.name}: {one.message}" for one in named_here[:SYMPTOMS_MAX]]
        lines += [one for one in _findings(evidence) if one.startswith(BATCH_IS_BAD)] if not lines and loaded_so else []
    return lines[:SHOWN_MAX]


def _made_by_script(evidence: Evidence) -> bool:
    """Whether the script made what is not finite out of finite data, before it called its model."""
    if any(str(one.get("input", "")).endswith(LOADED) for one in evidence.facts.get("batch_nonfinite") or ()):
        return False
    located = evidence.finding.located if evidence.finding is not None else None
    made = evidence.facts.get("nonfinite_made")
    before = any(isinstance(one, dict) and one.get("before_model") for one in made) if isinstance(made, list) else False
    return before or (located is not None and located.phase == "preprocessing")


def _rows(evidence: Evidence) -> list[str]:
    """The first row of the batch that stands out, with its place in the data set and its text."""
    row = evidence.answer.rows[0] if evidence.answer is not None and evidence.answer.rows else None
    if row is None:
        return []
    text = f": {short(row.text)!r}" if row.text else ""
    return [f"row {row.row} of step {row.step}{f', {row.sample}' if row.sample else ''}{text}"]


def _findings(evidence: Evidence) -> list[str]:
    """What the search at the incident named: the first bad operation, or the reason why there is none."""
    finding = evidence.finding
    if finding is None:
        return []
    place = finding.located
    if place is None:
        return [finding.why] if finding.why else []
    line = f" at {place.file}:{place.line}" if place.file else ""
    return [f"{place.operation_said} made {place.produced} in {place.phase}{line}"]


def _instrument(step: Step, evidence: Evidence, taken: Taken) -> StepResult:
    run, where = evidence.run, named(evidence.source)
    onset = evidence.commands.get("onset")
    place = evidence.finding.located if evidence.finding is not None else None
    located = _findings(evidence) if place is not None else []
    symptoms = sorted(run.symptoms, key=lambda one: one.first_step) if run is not None else []
    shown = [f"{one.severity}: {one.message}" for one in symptoms if one.severity != "note"][:SYMPTOMS_MAX]
    shown += [f"first to depart: {onset.what}"] if onset is not None and onset.done else []
    shown += located[:1]
    streams = run.streams() if run is not None else []
    tables = ", ".join(run.tables(streams[0])) if run is not None and streams else ""
    level = run.description.get("level", "?") if run is not None else "?"
    did = f"recorded {run.steps:,} steps at level {level} ({tables or 'losses only'})" if run is not None else ""
    did = "; ".join(filter(None, (did, "onset" if onset is not None and onset.done else "")))
    if not did:
        why = "the run of this incident is not here"
        return result_of(step, "not possible", why, "", located, "", f"steadytrain show {where}")
    command = f"steadytrain report {where}"
    if onset is None and "onset" in taken.left_out and shown:
        command = f"steadytrain onset {where}"
        shown.append(f"onset was not run: {taken.left_out['onset']}")
    elif evidence.nonfinite and place is None and not _damaged(evidence):
        command = f"steadytrain locate {where}"
    means = "what departs first is where to look; what comes later follows from it" if shown else ""
    return result_of(step, "done", "", did, shown, means or "no detector raised more than a note", command)


def _isolate(step: Step, evidence: Evidence, taken: Taken) -> StepResult:
    answer, where = evidence.answer, named(evidence.source)
    command = f"steadytrain diagnose {where}"
    if answer is None:
        why = taken.left_out.get("diagnose", "not diagnosed yet")
        return result_of(step, "skipped", why, "", tuple(map(trial_line, ran_in(step, evidence))), "", command)
    ran = [row for row in answer.trials if row.effect != "not-run"]
    shown = [f"lies in: {axis_word(answer.axis.name)} ({answer.axis.why})"] if answer.axis is not None else []
    shown += map(trial_line, ran_in(step, evidence))
    status: Status = "found" if found_step(evidence) == step.name else "done"
    did = f"diagnose: {counted(ran)} on the replay" if ran else "diagnose: the survey, no trial"
    means = cause_line(evidence) or (f"cause unknown: {answer.why}" if is_sick(evidence) else answer.why)
    cut = any("--budget" in one for one in answer.record_next)
    return result_of(
        step, status, "", did, shown, means, f"{command} --budget 30m" if cut else f"steadytrain show {where}"
    )


def _distributed(step: Step, evidence: Evidence, taken: Taken) -> StepResult:
    facts = evidence.facts
    ranks = (
        facts.get("ranks") or (evidence.run.description.get("world_size") if evidence.run is not None else None) or 1
    )
    workers = facts.get("workers")
    trials = ran_in(step, evidence)
    if int(ranks) <= 1 and not workers and not trials:
        return result_of(
            step, "skipped", "one process trained, without loader workers", "", (), "", "steadytrain doctor"
        )
    if int(ranks) <= 1:
        return tried_step(step, evidence, taken)
    differ = [
        f"{what}: {short(facts[name])}"
        for name, what in (
            ("rank_parameters_differ", "parameters differ between ranks"),
            ("rank_scales_differ", "loss scales differ between ranks"),
        )
        if facts.get(name)
    ]
    synchronized = facts.get("ranks_synchronized")
    shown = [
        *differ,
        *([f"gradients were {'' if synchronized else 'not '}averaged"] if synchronized is not None else []),
    ]
    status: Status = "found" if found_step(evidence) == step.name else "done"
    means = (
        cause_line(evidence)
        if status == "found"
        else "try one process: gone at that scale means distribution or a race"
    )
    did = f"compared the records of {ranks} ranks"
    return result_of(
        step, status, "", did, (*shown, *map(trial_line, trials)), means, f"steadytrain run {taken.script}"
    )


def _report(step: Step, evidence: Evidence, taken: Taken) -> StepResult:
    made, command = evidence.commands.get("repro"), f"steadytrain repro {named(evidence.source)} -o repro"
    if made is not None and made.done:
        means = "this is what a bug report needs; nobody has to run your training"
        return result_of(step, "done", "", "repro", (made.what,), means, f"steadytrain report {named(evidence.source)}")
    if made is not None:
        return result_of(step, "not possible", made.what, "", (), "", f"steadytrain report {named(evidence.source)}")
    if not is_sick(evidence):
        why = "no symptom above a note, so there is nothing to reproduce"
        return result_of(step, "skipped", why, "", (), "", f"steadytrain checklist {named(evidence.source)}")
    return result_of(step, "skipped", taken.left_out.get("repro", "not made yet"), "", (), "", command)


_DESCRIBED: Mapping[str, Callable[[Step, Evidence, Taken], StepResult]] = {
    "reproduce": _reproduce,
    "data": _data,
    "instrument": _instrument,
    "isolate": _isolate,
    "distributed": _distributed,
    "report": _report,
}
