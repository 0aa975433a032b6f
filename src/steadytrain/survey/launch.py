"""Launches the recorded script once more and gathers facts without changing anything.

``experiments/facts.py`` names the facts. With a snapshot and a tape, recorded steps are replayed up to the incident's.
Otherwise the script computes its own first steps. This room has one file for each subject. An error there costs its
facts, not the survey. The launched side runs as ``python -m steadytrain.survey.launch SOURCE RESULT.json OLD=NEW|-
LEAD_S ONSET|- [KEEP|stay]``: it keeps the state after the step ``KEEP``, or is one of several ranks (``rank_survey``).
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadytrain.core.errors import UsageError
from steadytrain.core.work_time import work_time
from steadytrain.experiments.facts import document_of, facts_path
from steadytrain.experiments.near_start import keep_near_start
from steadytrain.replay.command_runner import as_program, leave, run_followed, stay
from steadytrain.replay.failing_step import Tell, check_launch, launch
from steadytrain.replay.from_script import STAY, Source, open_source
from steadytrain.replay.moved_files import Moved, moved_environment
from steadytrain.replay.own_steps import OwnSteps
from steadytrain.replay.rank_replay import common_lead
from steadytrain.storage.bundle import open_bundle, write_json
from steadytrain.storage.rank_group import RankGroup, rank_group
from steadytrain.storage.run_folder import open_run
from steadytrain.storage.state_before import newest_before, step_before
from steadytrain.storage.tape_files import Recording
from steadytrain.survey.rank_survey import surveyed, with_common_snapshots

if TYPE_CHECKING:
    from steadytrain.capture.step.observers import StepObserver
    from steadytrain.survey.observer import Observed

MODULE = "steadytrain.survey.launch"
NOT_GIVEN = "-"
REPLAY_S_MAX = 15.0
"""If the steps from the last snapshot to the incident took longer than this in the run, in seconds, the survey begins
right before the incident, provided that the bundle holds that state."""

OWN_STEPS_MAX = 6
"""Steps that the script computes itself, to be surveyed, if it leaves out those up to the snapshot. More than one needs
loaders that fetch no batch ahead: theirs would be fed to the recorded steps."""

UNTIL_WITHOUT_INCIDENT = 64
"""Steps to run if there is nothing to replay. Often they include a first evaluation."""


class CannotSurveyError(Exception):
    """The launched command yielded no facts; the text says why."""


def survey(
    source: Path,
    *,
    moved: Moved,
    wait_s: float,
    lead_s: float,
    onset: int | None = None,
    near: int | None = None,
    keep: bool = True,
    tell: Tell | None = None,
) -> dict[str, Any]:
    """The facts of a bundle or a run folder. With ``keep`` they are saved in its trials folder.

    Args:
        wait_s: time limit of the launched script in seconds, from the budget of the diagnosis.
        tell: gets lines of progress.
        onset: the first step of the problem, which gets a closer look; by default that of the incident's first symptom.
        near: the step after which the state is kept for trials (``experiments.near_start``).

    Raises:
        UsageError: the incident does not exist, or the script is gone.
        CannotSurveyError: the script ended before its first update, or took longer than ``wait_s`` seconds.
    """
    opened = open_source(source, moved)
    with tempfile.TemporaryDirectory(prefix="steadytrain-survey-") as scratch:
        result = Path(scratch) / "result.json"
        last = NOT_GIVEN if not onset else str(onset)
        if (group := rank_group(source)) is not None:
            facts = _of_ranks(group, moved, (lead_s, last), Path(scratch), wait_s)
        else:
            command = [str(source.absolute()), str(result), str(moved), str(lead_s), last, str(near or "")]
            _launch(opened, moved, command, result, wait_s, tell)
            facts = json.loads(result.read_text(encoding="utf-8"))
            if near is not None and keep and facts.get("replay_exact"):
                with suppress(OSError):  # trials start at the run's own snapshot then
                    keep_near_start(Path(scratch), source)
    made = _made(opened)
    if made is not None:
        facts.setdefault("steps_planned", made)
    if keep:
        place = facts_path(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        write_json(place, document_of(facts, source=str(source)))
    return facts


def _of_ranks(group: RankGroup, moved: Moved, given: tuple[float, str], scratch: Path, wait_s: float) -> dict[str, Any]:
    """The facts of the asked rank; all make as many steps themselves."""
    starts = group.common.starts()
    lead = common_lead(group, max(starts) - 1, moved, given[0]) if starts else str(math.inf)
    facts = surveyed(group, MODULE, [lead, given[1]], scratch, moved=moved, wait_s=wait_s)
    if isinstance(facts, str):
        raise CannotSurveyError(facts)
    return facts


def _made(opened: Source) -> int | None:
    """The number of steps of a run that finished, which counts as the planned number. None otherwise."""
    if opened.incident_step is not None:
        return None
    run = open_run(opened.path)
    steps = run.scalars().steps
    return int(steps[-1]) if run.ended == "finished" and len(steps) else None


def _launch(opened: Source, moved: Moved, arguments: list[str], result: Path, wait_s: float, tell: Tell | None) -> None:
    environment = moved_environment(opened.environment, moved)
    check_launch(environment)
    command = ["-m", MODULE, *arguments]
    why = launch(
        command,
        result,
        environment,
        folder=environment.get("cwd"),
        wait_s=wait_s,
        until="first update",
        limit=f"half of --budget, at most 300 s{work_time.note()}",
        tell=tell,
    )
    if why is not None:
        raise CannotSurveyError(why)


def main(source: str, result: str, moved: str, lead_s: str, onset: str, end: str = "") -> int:
    place = Moved.parse(moved)
    opened = open_source(Path(source), place)
    place.put_on_path()
    result_path = Path(result)

    def done(facts: dict[str, Any]) -> None:
        write_json(result_path, facts)
        stay() if end == STAY else leave()

    following: list[Observed] = []
    near = _begins_near(opened, float(lead_s)) if end != STAY else None
    if end == STAY:
        opened = with_common_snapshots(opened)

    def watching() -> StepObserver:
        watched = _observed(
            opened if near is None else _with_state(opened, near, result_path.parent),
            float(lead_s),
            int(onset) if onset != NOT_GIVEN else None,
            done,
            keep=(int(end), result_path.parent) if end.isdecimal() else None,
        )
        following.append(watched)
        watched.begin()
        return watched

    status = run_followed(opened, watching, name="survey", scratch=result_path.parent, is_guest=True)
    if following and following[0].seen_steps:
        following[0].finish()  # the script ended or failed before the last surveyed step
    return status


def _reads_ahead(recording: Recording, step: int) -> bool:
    """Whether a loader had more than one batch ready at the run's first step."""
    from steadytrain.replay.recorded_steps import RecordedSteps

    return any(count > 1 for count in RecordedSteps(recording).first_fetched(step).values())


def _begins_near(opened: Source, lead_s: float) -> int | None:
    """The step before the incident's if the survey begins there, None if at the newest snapshot."""
    shot = newest_before(opened.recording, opened.incident_step or 0)
    if shot is None or opened.incident is None or not opened.own_steps(shot.step, lead_s).skips:
        return None
    dear = (opened.incident.step - shot.step) * opened.step_s > REPLAY_S_MAX
    return step_before(opened.path, opened.incident, opened.recording) if dear else None


def _with_state(opened: Source, step: int, folder: Path) -> Source:
    from steadytrain.replay.state_before import with_state_before

    return replace(opened, recording=with_state_before(opened.recording, opened.path, step, folder / "state"))


def _alone(
    opened: Source, onset: int | None, done: Callable[[dict[str, Any]], None], note: str, *, until: int | None = None
) -> Observed:
    """Observes the script's own steps without a replay."""
    from steadytrain.survey.observer import Observed
    from steadytrain.survey.surveyed_steps import Alone

    until = until or min(opened.incident_step or UNTIL_WITHOUT_INCIDENT, UNTIL_WITHOUT_INCIDENT)
    return Observed(Alone(opened.stream), until=until, onset=onset, first=1, done=done, notes=[note])


def _crashed(opened: Source) -> bool:
    """Whether the run ended with an error of the script."""
    return opened.incident_step is None and open_run(opened.path).ended == "failed"


def _onset(opened: Source) -> int | None:
    """The first step of the incident's first symptom; None without an incident."""
    if opened.incident_step is None:
        return None
    incident = open_bundle(opened.path).incident
    own = (symptom for symptom in incident.symptoms if symptom.stream == incident.stream)
    return min((symptom.first_step for symptom in own), default=opened.incident_step)


def _observed(
    opened: Source,
    lead_s: float,
    onset: int | None,
    done: Callable[[dict[str, Any]], None],
    *,
    keep: tuple[int, Path] | None,
) -> Observed:
    """The observer of the launched script: with a replay, or alone. ``keep`` is a step after which the state is kept,
    and the folder for it."""
    from steadytrain.survey.kept_start import KeptStart
    from steadytrain.survey.observer import Observed
    from steadytrain.survey.surveyed_steps import ReplayedSteps

    onset = onset or _onset(opened)
    recording = opened.recording
    try:
        snapshot, last = recording.choose(first=None, until=opened.incident_step)
        if onset is not None and onset <= snapshot.step:
            earlier = [start for start in recording.starts() if start <= onset]
            snapshot, last = recording.choose(first=max(earlier, default=None), until=last)
    except UsageError as error:
        return _alone(opened, onset, done, f"nothing was replayed: {error}")
    if _crashed(opened) and not opened.own_steps(last, lead_s).skips:
        return _alone(opened, last + 1, done, "the script failed; it ran again up to that point", until=last + 1)
    own_steps = opened.own_steps(snapshot.step, lead_s)
    if own_steps.skips and not _reads_ahead(recording, last):
        seen = min(OWN_STEPS_MAX, int(lead_s / opened.step_s), snapshot.step)
        own_steps = OwnSteps(max(own_steps.wanted, seen), skips=True)
    kept = None if keep is None else KeptStart(*keep)
    inner = ReplayedSteps(recording, snapshot=snapshot, until=last, own_steps=own_steps, kept=kept)
    return Observed(inner, until=last, onset=onset, first=snapshot.step + 1, done=done, notes=[])


if __name__ == "__main__":
    as_program(main)
