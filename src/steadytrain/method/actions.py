"""What a walk runs itself, one action for each result that can be missing. Each keeps its result beside the incident.

An action returns why it came to no result, None if it did. A reason that more time would change is not kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from steadytrain.checks.data.data_check import Circumstances, Options
from steadytrain.checks.data.data_pass import look_at
from steadytrain.checks.data.sources import Wanted
from steadytrain.core.errors import UsageError
from steadytrain.diagnosis.case_with_run import open_story
from steadytrain.experiments.command_results import CommandResult, keep_result, keep_verdicts
from steadytrain.experiments.facts import read_facts
from steadytrain.experiments.outcome_files import trials_folder
from steadytrain.experiments.specs import NO_TIME_LEFT
from steadytrain.method.evidence import Evidence
from steadytrain.method.script_run import Script, preflight
from steadytrain.method.step_result import is_sick
from steadytrain.method.steps import USUAL
from steadytrain.onset.finding import document_of, find_onset
from steadytrain.replay import launcher, verdict
from steadytrain.replay.launcher import CannotReplayError
from steadytrain.replay.moved_files import Moved
from steadytrain.storage.bundle import is_bundle, open_bundle
from steadytrain.storage.tape_files import find_recording
from steadytrain.trial_runs import diagnose as diagnosing
from steadytrain.trial_runs.trial_session import How, run_named

REPRO_SHARE = 0.15
"""Share of the budget that the earlier actions leave for the reproduction."""

LEAD_S_MAX = 120.0
EXPLAIN_S_MIN = 60.0
"""With less time a replay that differs is not explained by further ones."""

ONSET_SHARE, PREFLIGHT_SHARE = 0.25, 0.25
DATA_ROWS_MAX = 100_000
TIME_OUT = "took more than"
"""Part of the reason of a launch that ran out of time."""


@dataclass(frozen=True)
class Request:
    """What to walk through: ``target`` is a run folder or bundle; ``script`` is given where the walk began with one.
    ``data`` are data sets to check, ``budget_s`` is the time for everything, in seconds."""

    target: Path
    budget_s: float
    workers: int = 1
    moved: str = "-"
    script: Script | None = None
    data: tuple[str, ...] = ()


@dataclass(frozen=True)
class Given:
    """What an action works with: the evidence so far, the request, its time in seconds."""

    evidence: Evidence
    request: Request
    wait_s: float
    tell: Callable[[str], None]

    @property
    def source(self) -> Path:
        return self.evidence.source

    @property
    def moved(self) -> Moved:
        return Moved.parse(self.request.moved)


@dataclass(frozen=True)
class Action:
    """``wanted`` says whether its result is missing and can be had; ``words`` name it in a line of progress."""

    name: str
    step: str
    words: str
    wanted: Callable[[Evidence, Request], bool]
    run: Callable[[Given], str | None]


def about(evidence: Evidence) -> str:
    """How long one launch takes, as far as it is known."""
    seconds = evidence.step_seconds
    return f"about {seconds:.0f} s" if seconds else "as long as the script needs to its recorded steps"


def _replay(given: Given) -> str | None:
    wait_s = given.wait_s
    try:
        asked = launcher.plan(
            given.source,
            first=None,
            until=None,
            moved=given.moved,
            wait_s=wait_s,
            lead_s=min(LEAD_S_MAX, wait_s),
        )
        replays, judgement = launcher.replay(asked, times=1, explain=wait_s > EXPLAIN_S_MIN)
    except (UsageError, CannotReplayError) as error:
        return _refused(given, "replay", str(error))
    document = verdict.document(str(given.source), replays, judgement, looked_for=asked.looked_for)
    keep_result(given.source, verdict.command_result(document))
    return None


def _preflight(given: Given) -> str | None:
    script, run = given.request.script, given.evidence.run
    assert script is not None
    assert run is not None
    return preflight(script, run.path, wait_s=max(1.0, PREFLIGHT_SHARE * given.wait_s))


def _check_data(given: Given) -> str | None:
    place = given.evidence.run.path if given.evidence.run is not None else given.source
    for path in given.request.data:
        wanted = Wanted(path, DATA_ROWS_MAX, None, None, Options(None, None))
        report = look_at(wanted, Circumstances(None, None, None), against=None, tell=lambda name, done, size: None)
        keep_result(place, CommandResult(f"check-data {Path(path).name}", True, report.summary, report.status))
    return None


def _onset(given: Given) -> str | None:
    try:
        onset = find_onset(
            given.source,
            until=None,
            moved=given.moved,
            wait_s=max(1.0, ONSET_SHARE * given.wait_s),
            lead_s=min(LEAD_S_MAX, given.wait_s),
            tell=given.tell,
        )
    except (UsageError, CannotReplayError) as error:
        return _refused(given, "onset", str(error))
    keep_result(given.source, CommandResult("onset", True, document_of(onset)["why"]))
    return None


def _diagnose(given: Given) -> str | None:
    request = diagnosing.Request(given.source, given.wait_s, given.request.workers, "local", given.request.moved)
    diagnosing.diagnose(request, tell=given.tell)
    return None


def _usual(given: Given) -> str | None:
    names = _missing(given.evidence)
    case = open_story(given.source, facts=read_facts(given.source))
    how = How(given.request.workers, given.wait_s, given.request.moved, "local", given.tell)
    verdicts, _ = run_named(given.source, case, names, how)
    late = [name for name in names if NO_TIME_LEFT in verdicts[name].why]
    keep_verdicts(given.source, "trial", {name: verdicts[name] for name in names if name not in late})
    return f"no time was left for {', '.join(late)}; a trial takes {about(given.evidence)}" if late else None


def _missing(evidence: Evidence) -> list[str]:
    """The usual trials that neither ran nor were refused."""
    usual = [name for names in USUAL.values() for name in names]
    return [name for name in usual if name not in evidence.tried or NO_TIME_LEFT in evidence.tried[name].why]


def _repro(given: Given) -> str | None:
    from steadytrain.repro.operation_repro import is_finite, make_repro
    from steadytrain.repro.rising_loss_repro import make_rising_repro, of_bundle, of_run

    folder = _free(trials_folder(given.source) / "repro")
    bundle = open_bundle(given.source) if is_bundle(given.source) else None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        if bundle is not None and not is_finite(bundle):
            made = make_repro(bundle, folder, wait_s=given.wait_s, compiled_wait_s=0.0)
        else:
            subject = of_bundle(bundle) if bundle is not None else of_run(given.source)
            made = make_rising_repro(subject, folder, wait_s=given.wait_s)
    except (UsageError, OSError) as error:
        return _refused(given, "repro", str(error))
    if not made.files:
        return _refused(given, "repro", made.why)
    what = f"{made.why} ({folder}{f', {made.lines} lines' if made.made else ''})"
    keep_result(given.source, CommandResult("repro", made.made, what, made.effect))
    return None


def _free(folder: Path) -> Path:
    """``folder``, or the first of its name with a number that is absent or empty."""
    names = (folder, *(folder.with_name(f"{folder.name}-{number}") for number in range(2, 100)))
    return next((one for one in names if not one.exists() or not any(one.iterdir())), folder)


def _refused(given: Given, command: str, why: str) -> str:
    """Keep why a command cannot work here, unless it only lacked time."""
    if TIME_OUT not in why:
        keep_result(given.source, CommandResult(command, False, why))
    return why


def _can_replay(evidence: Evidence, request: Request) -> bool:
    return "replay" not in evidence.commands


def _can_measure(evidence: Evidence, request: Request) -> bool:
    return is_sick(evidence) and "onset" not in evidence.commands and bool(find_recording(evidence.source).starts())


def _is_open(evidence: Evidence, request: Request) -> bool:
    return evidence.answer is None or any("--budget" in one for one in evidence.answer.record_next)


def _has_usual(evidence: Evidence, request: Request) -> bool:
    confirmed = evidence.answer is not None and evidence.answer.status == "confirmed"
    return is_sick(evidence) and not confirmed and bool(_missing(evidence))


def _lacks_preflight(evidence: Evidence, request: Request) -> bool:
    return request.script is not None and evidence.run is not None and not evidence.preflight


def _lacks_data(evidence: Evidence, request: Request) -> bool:
    return any(f"check-data {Path(path).name}" not in evidence.commands for path in request.data)


def _lacks_repro(evidence: Evidence, request: Request) -> bool:
    return is_sick(evidence) and "repro" not in evidence.commands


ACTIONS: tuple[Action, ...] = (
    Action("replay", "reproduce", "replaying the recorded steps", _can_replay, _replay),
    Action("check-data", "data", "checking the data", _lacks_data, _check_data),
    Action("preflight", "data", "checking the script's first steps", _lacks_preflight, _preflight),
    Action("onset", "instrument", "finding what departed first", _can_measure, _onset),
    Action("diagnose", "isolate", "diagnosing by trials", _is_open, _diagnose),
    Action("usual", "precision", "trying precision, rate, warm-up and clipping", _has_usual, _usual),
    Action("repro", "report", "making a minimal reproduction", _lacks_repro, _repro),
)
