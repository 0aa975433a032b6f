"""Diagnoses an incident: surveys, weighs causes, runs trials and repeats, until a cause is proven or no trial helps.

::

    open ──► survey ──► signatures ──► control and first trials ──► verdicts ──► weigh ──► next trials ... ──► answer

Launched processes run the script (``survey``, ``trial_runs``); ``steadytrain.diagnosis`` is pure and draws the
conclusions. Finished trials and the survey are stored, so an interrupted diagnosis resumes. Torch-free.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from steadytrain.core.errors import UsageError
from steadytrain.core.work_time import work_time
from steadytrain.diagnosis.answer import UNKNOWN, Diagnosis
from steadytrain.diagnosis.answer_files import keep
from steadytrain.diagnosis.batch_trigger import asked_first, batch_note, rank_note
from steadytrain.diagnosis.case_with_run import open_story
from steadytrain.diagnosis.conclusion import Circumstances, conclude, in_words
from steadytrain.diagnosis.opening import looked
from steadytrain.diagnosis.proof import Control, needed, proof
from steadytrain.diagnosis.signs import fact, surveyed
from steadytrain.diagnosis.suspects import suspects_of
from steadytrain.diagnosis.trial_choice import choose, cost, customary, leading
from steadytrain.diagnosis.unexplained import unexplained
from steadytrain.diagnosis.weighing import Suspect, weigh
from steadytrain.experiments.case import LEAD_S_MAX, Case
from steadytrain.experiments.case_files import open_case
from steadytrain.experiments.contrast import Contrast
from steadytrain.experiments.crash_facts import crash_note, facts_of_crash
from steadytrain.experiments.facts import read_facts
from steadytrain.experiments.near_start import near_start, starting_near
from steadytrain.experiments.progress_file import Progress
from steadytrain.experiments.rank_facts import facts_of_ranks
from steadytrain.experiments.specs import NO_TIME_LEFT, UNCHANGED, NotApplicable, Outcome, Spec, Verdict
from steadytrain.experiments.trial_catalog import plan_of, trials, with_controls
from steadytrain.experiments.trial_starts import other_start
from steadytrain.replay.failing_step import check_launch
from steadytrain.replay.moved_files import Moved, moved_environment
from steadytrain.storage.bundle import is_bundle
from steadytrain.storage.run_folder import open_run
from steadytrain.storage.run_search import whole_run
from steadytrain.survey.launch import CannotSurveyError, survey
from steadytrain.tracing.involved_rows import batch_rows
from steadytrain.trial_runs import close_pools, lack_of_time, patched_files, prepare, run_trials
from steadytrain.trial_runs.contrasts import Known, run_contrasts
from steadytrain.trial_runs.unnamed_operation import name_operation
from steadytrain.trial_runs.verdicts import control_of, own_batches, verdict_of

ROUND_TRIALS = 4
"""Trials between two updates of the probabilities. Independent of the number of workers, so that the answer is too."""

ROUNDS_MAX = 16
SURVEY_WAIT_S, SURVEY_SHARE = 300.0, 0.5
"""Longest time of the survey in seconds, and the share of the budget: the control takes about as long."""

CONTROL_S_MIN = 30.0
"""The first round holds the control. It may take this many seconds after a long survey, or half of a shorter budget."""

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Request:
    """``budget_s`` is the time in seconds during which trials may start. ``symptom`` and ``onset`` are what somebody
    sees, if it is not what the detectors raised."""

    source: Path
    budget_s: float
    workers: int
    engine: str = "local"
    moved: str = "-"
    symptom: str | None = None
    onset: int | None = None


@dataclass
class _Bench:
    """The state of one diagnosis: its plans and their results."""

    request: Request
    case: Case
    suspects: tuple[Suspect, ...]
    plans: dict[str, tuple[Spec, ...]]
    refused: dict[str, str]
    tell: Tell
    until: float
    clock: Callable[[], float]
    progress: Progress
    outcomes: dict[str, list[Outcome]] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    control: Control = field(default=Control(False, False, None, "no trial was run"))
    spent: bool = False
    contrasts: dict[str, Contrast] = field(default_factory=dict)


def diagnose(request: Request, *, tell: Tell, clock: Callable[[], float] = work_time) -> Diagnosis:
    """Diagnoses a bundle or a run and stores the answer in its trials folder.

    Raises:
        UsageError: the incident does not exist or is damaged, or the engine is not available.
        KeyboardInterrupt: with one line that says what is known so far.
    """
    progress = Progress(request.source)
    try:
        return _diagnosed(request, progress, tell=tell, clock=clock)
    finally:
        close_pools()
        progress.ended()


def _diagnosed(request: Request, progress: Progress, *, tell: Tell, clock: Callable[[], float]) -> Diagnosis:
    until, source, budget_s = clock() + request.budget_s, request.source, request.budget_s
    name_operation(source, request.moved, budget_s=budget_s, slower=work_time.slower(), tell=tell)
    case, notes = _case(request, progress, tell)
    plans, refused = _plans(case)
    bench = _Bench(request, case, suspects_of(case), plans, refused, tell, until, clock, progress)
    if case.symptom is not None and case.symptom.severity != "note":
        try:
            _try(bench)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_so_far(bench)) from None
    elif surveyed(bench.case):
        bench.control = looked(bench.case.facts)
    if bench.spent and (late := {name: bench.plans[name] for name in _next(bench, count=ROUND_TRIALS)}):
        ran = [one for outcomes in bench.outcomes.values() for one in outcomes]
        notes.append(lack_of_time.note(late, ran, bench.case.step_s))
    order = sorted(bench.verdicts.values(), key=lambda one: (one.trial != UNCHANGED, one.trial))
    answer = conclude(bench.suspects, order, _circumstances(bench), absent=_absent(bench))
    rows = batch_rows(bench.case)
    if bench.case.aim == "finite":
        rank = bench.case.ranks.failing if bench.case.ranks is not None else None
        triggers = batch_note(bench.verdicts, bench.contrasts, bench.case.onset, rows, rank)
        notes[:0] = [triggers, rank_note(bench.verdicts)]
    if (run := whole_run(request.source)) is not None:
        notes.append(unexplained(run.symptoms, answer, run.path.name))
    answer = replace(answer, notes=(*answer.notes, *filter(None, notes)), rows=rows)
    try:
        keep(request.source, answer)
    except OSError as error:
        tell(f"the diagnosis could not be stored: {error}")
    return answer


# Before the trials.


def _case(request: Request, progress: Progress, tell: Tell) -> tuple[Case, list[str]]:
    """The case with the facts of a survey, and notes about the survey."""
    run = whole_run(request.source)
    case, notes = _opened(request).with_facts(facts_of_crash(run)), [*crash_note(run)]
    facts, ranks = read_facts(request.source), facts_of_ranks(run)
    if facts is None:
        if case.symptom is not None and case.symptom.severity != "note":
            prepare(request.source, workers=request.workers, moved=request.moved, engine=request.engine)
        progress.doing("surveying the script's own steps")
        tell(f"surveying the script's own steps{work_time.note()}")
        try:
            facts = survey(
                request.source,
                moved=Moved.parse(request.moved),
                wait_s=min(SURVEY_WAIT_S, SURVEY_SHARE * request.budget_s) * work_time.slower(),
                lead_s=LEAD_S_MAX,
                onset=case.onset,
                near=near_start(case),
                tell=tell,
            )
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"interrupted during the survey: {_shown(case)}; nothing was tried yet") from None
        except (CannotSurveyError, UsageError) as error:
            notes.append(f"No survey: {error}")
    return starting_near(case).with_facts({**(facts or {}), **ranks}), notes


def _opened(request: Request) -> Case:
    """The case of a bundle or run. A run without a symptom is surveyed too."""
    source = request.source
    if request.symptom is not None or request.onset is not None:
        return open_story(source, onset=request.onset, symptom=request.symptom)
    try:
        return open_story(source)
    except UsageError:
        if is_bundle(source):
            raise
        window = open_run(source).scalars()
        if not len(window):
            raise
        return open_case(source, onset=int(window.steps[-1]))


def _plans(case: Case) -> tuple[dict[str, tuple[Spec, ...]], dict[str, str]]:
    """The plans of the trials that apply, and why the others do not."""
    plans: dict[str, tuple[Spec, ...]] = {}
    refused: dict[str, str] = {}
    for trial in trials():
        plan = plan_of(trial, case)
        if isinstance(plan, NotApplicable):
            refused[trial.name] = plan.why
        else:
            plans[trial.name] = plan
    return plans, refused


# The trials.


def _try(bench: _Bench) -> None:
    """Runs rounds of trials until a cause is proven, no trial is worthwhile, or the time is over."""
    if UNCHANGED not in bench.plans:
        bench.control = Control(False, False, None, bench.refused.get(UNCHANGED, "there is nothing to start from"))
        return
    try:
        check_launch(moved_environment(bench.case.environment, Moved.parse(bench.request.moved)))
    except UsageError as error:
        bench.control = Control(False, False, None, str(error))
        return
    _run(bench, (UNCHANGED, *_next(bench, count=ROUND_TRIALS - 1)))
    _repeat_from_elsewhere(bench)
    for _ in range(ROUNDS_MAX):
        if bench.spent or not bench.control.shown or _contrasted(bench):
            return
        chosen = _next(bench, count=ROUND_TRIALS)
        if not chosen:
            return
        if bench.clock() >= bench.until:
            bench.spent = True
            return
        _run(bench, chosen)


def _repeat_from_elsewhere(bench: _Bench) -> None:
    """Starts again from another place, if the control is not the run, or batches were not. What was found so far stays
    if the time ends before that, and an exact replay if no other shows more."""
    differs = not (bench.control.shown and bench.control.exact)
    own = own_batches(bench.verdicts, bench.outcomes)
    other = other_start(bench.case, differs=differs) if bench.control.ran and (own or differs) else None
    if other is None or bench.clock() >= bench.until:
        return
    kept = {name: getattr(bench, name) for name in _FOUND}
    bench.case, how = other
    bench.tell(f"the replay differs from the run: once more, {how}")
    bench.plans, bench.refused = _plans(bench.case)
    bench.outcomes, bench.verdicts, bench.contrasts = {}, {}, {}
    _run(bench, (UNCHANGED, *_next(bench, count=ROUND_TRIALS - 1)))
    if bench.control.ran and (bench.control.shown or not kept["control"].exact):
        _repeat_from_elsewhere(bench)  # there are few starts, each tried once
    else:
        vars(bench).update(kept)


_FOUND = ("case", "suspects", "plans", "refused", "outcomes", "verdicts", "control", "contrasts")


def _contrasted(bench: _Bench) -> bool:
    """Runs the contrasts of trials that would confirm. Returns whether a cause is proven."""
    waiting = [name for name in bench.plans if name not in bench.outcomes]
    known = Known(bench.suspects, bench.verdicts, bench.control, waiting, surveyed(bench.case), _controls(bench))
    in_time = run_contrasts(known, bench.case, bench.outcomes, bench.contrasts, partial(_launch, bench))
    bench.spent = bench.spent or not in_time
    return in_time and _proven(bench)


def _next(bench: _Bench, *, count: int) -> tuple[str, ...]:
    belief = weigh(bench.suspects, bench.verdicts.values(), bench.contrasts)
    waiting = {trial: cost(specs) for trial, specs in bench.plans.items() if trial not in bench.outcomes}
    waiting.pop(UNCHANGED, None)
    by_name = {suspect.name: suspect for suspect in bench.suspects}
    needs = [one for name in leading(belief) for one in needed(by_name[name], bench.verdicts, waiting)]
    if bench.case.aim == "finite":  # a single bad step: the answer always says whether its batch alone is enough
        needs[:0] = asked_first(bench.case)
    chosen = choose(bench.suspects, belief, waiting, tuple(dict.fromkeys(needs)), count=count)
    return chosen or customary(bench.case.aim, bench.verdicts, waiting)


def _run(bench: _Bench, names: Sequence[str]) -> None:
    """Runs the plans of these trials and judges all outcomes so far."""
    controls = bench.outcomes.get(UNCHANGED, [])
    planned = [spec for name in names for spec in bench.plans[name]]
    specs = with_controls(planned, bench.case, [one.spec.begin for one in controls])
    belief = weigh(bench.suspects, bench.verdicts.values(), bench.contrasts)
    best = next(iter(belief))
    bench.progress.doing(f"trying {', '.join(names)}")
    bench.tell(f"trying {', '.join(names)} (so far: {best} {belief[best]:.2f})")
    bench.outcomes |= {name: [] for name in names}
    at_least = min(CONTROL_S_MIN, bench.request.budget_s / 2) if UNCHANGED in names else 0.0
    for outcome in _launch(bench, "", specs, at_least_s=at_least):
        bench.outcomes[outcome.spec.trial].append(outcome)
    _put_back(bench, names)
    _judge(bench)


def _launch(bench: _Bench, line: str, specs: Sequence[Spec], *, at_least_s: float = 0.0) -> list[Outcome]:
    """Says ``line`` and runs specs in the time that is left, or ``at_least_s`` seconds."""
    if line:
        bench.progress.doing(line)
        bench.tell(line)
    found = run_trials(
        bench.request.source,
        specs,
        workers=bench.request.workers,
        budget_s=max(at_least_s, bench.until - bench.clock()),
        tell=bench.tell,
        moved=bench.request.moved,
        engine=bench.request.engine,
    )
    return list(found)


def _put_back(bench: _Bench, names: Sequence[str]) -> None:
    """Returns trials that ran out of time to the waiting ones."""
    late = [name for name in names if any(one.why_not == NO_TIME_LEFT for one in bench.outcomes[name])]
    bench.spent = bench.spent or bool(late)
    for name in late:
        if name != UNCHANGED:
            del bench.outcomes[name]


def _judge(bench: _Bench) -> None:
    known = {trial.name: trial for trial in trials()}
    for outcomes in bench.outcomes.values():
        outcomes.sort(key=lambda one: one.spec.repeat)
    controls = _controls(bench)
    bench.control = control_of(bench.case, bench.outcomes.get(UNCHANGED, []), controls)
    if bench.control.exact is not None:
        bench.case = bench.case.with_facts({"replay_exact": bench.control.exact})
        bench.suspects = suspects_of(bench.case)
    bench.verdicts = {
        name: verdict_of(bench.case, bench.control, known[name], controls, outcomes)
        for name, outcomes in sorted(bench.outcomes.items())
    }
    bench.progress.judged(bench.verdicts.values())


def _controls(bench: _Bench) -> list[Outcome]:
    known = {trial.name: trial.control for trial in trials()}
    return [one for name, outcomes in bench.outcomes.items() if known[name] for one in outcomes if one.ran]


def _proven(bench: _Bench) -> bool:
    belief = weigh(bench.suspects, bench.verdicts.values(), bench.contrasts)
    best = next(iter(belief))
    if best == UNKNOWN or belief[best] < 0.9:
        return False
    suspect = next(one for one in bench.suspects if one.name == best)
    waiting = [name for name in bench.plans if name not in bench.outcomes]
    known = surveyed(bench.case)
    return proof(suspect, bench.verdicts, bench.control, waiting, surveyed=known, contrasts=bench.contrasts).proven


def _shown(case: Case) -> str:
    return f"the symptom is {case.symptom.name}" if case.symptom is not None else "there is no symptom"


def _so_far(bench: _Bench) -> str:
    """One line for a diagnosis that was interrupted."""
    belief = weigh(bench.suspects, bench.verdicts.values(), bench.contrasts)
    best = next(iter(belief))
    done = [name for name, outcomes in bench.outcomes.items() if any(one.ran for one in outcomes)]
    kept = f"{', '.join(done)} finished and is kept for the next diagnosis" if done else "no trial has finished"
    return f"interrupted: {_shown(bench.case)}; so far {best} ({belief[best]:.2f}); {kept}"


# After the trials.


def _absent(bench: _Bench) -> list[Verdict]:
    """The trials that the leading causes need but that do not apply, with the reason."""
    belief = weigh(bench.suspects, bench.verdicts.values(), bench.contrasts)
    wanted = {
        trial
        for suspect in bench.suspects
        if suspect.name in list(belief)[:2]
        for trial in (*suspect.cause.confirming, *suspect.cause.spared)
    }
    return [
        Verdict(name, "not-run", why=bench.refused[name]) for name in sorted(wanted & set(bench.refused) - {UNCHANGED})
    ]


def _circumstances(bench: _Bench) -> Circumstances:
    return Circumstances(
        symptom=in_words(bench.case.symptom),
        control=bench.control,
        surveyed=surveyed(bench.case),
        waiting=tuple(name for name in bench.plans if name not in bench.outcomes),
        target=str(bench.request.source),
        spent=bench.spent,
        of_note=bench.case.of_note,
        contrasts=bench.contrasts,
        refused=bench.refused,
        optimizer=fact(bench.case, "optimizer"),
        located=bench.case.finding.located if bench.case.finding is not None else None,
        hints=patched_files.hints(bench.case, bench.request.moved),
        onset=bench.case.onset if bench.case.symptom is not None else None,
    )
