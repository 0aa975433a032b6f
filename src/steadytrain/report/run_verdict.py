"""The verdict of a run: one sentence that heads its report."""

from __future__ import annotations

from collections.abc import Sequence

from steadytrain.core.model import Symptom, worst
from steadytrain.experiments.crash_facts import failure_of
from steadytrain.report.circumstances import detectors
from steadytrain.report.report_values import IncidentPart
from steadytrain.report.wording import clean, count, step_range
from steadytrain.storage.rank_differences import rank_differences
from steadytrain.storage.rank_endings import first_end_of
from steadytrain.storage.run_folder import Run
from steadytrain.storage.stalls import stall_before
from steadytrain.storage.stopped_recording import stopped_sentence

NAMES_MAX = 6
"""The verdict counts the detectors if there are more than this; the facts list them all."""

QUIET = ("No alarm", "No symptom")
"""How the verdict of a run begins that raised nothing."""


def run_verdict(run: Run, seen: Sequence[tuple[Symptom, str]], incidents: Sequence[IncidentPart], steps: int) -> str:
    """What heads the report of a run: its gravest incident or symptom, or how it ended.

    Args:
        seen: its symptoms, each with the rank that it is of, "" for the first one.
    """
    grave = worst([symptom.severity for symptom, _ in seen])
    if incidents and not (incidents[0].is_note and grave in ("warning", "critical")):
        more = f" ({len(run.incidents)} incidents were kept)" if len(run.incidents) > 1 else ""
        quiet = "No alarm; " if incidents[0].is_note else ""
        return f"{quiet}{incidents[0].title}{more}"
    if seen:
        first, origin = next(one for one in seen if one[0].severity == grave)
        compares = "ranks.value" in first.signals  # its message names the rank
        quiet, on = "No alarm; " if grave == "note" else "", f" on {clean(origin)}" if origin and not compares else ""
        return f"{quiet}{first.severity}: {clean(first.name)}{on} at {step_range(first)}: {clean(first.message)}"
    if not steps:
        return "No step was recorded"
    if stopped := stopped_sentence(run.path):
        return f"{stopped[0].removesuffix('.')}; no symptom is on record in the {count(steps)} steps before"
    if first_rank := ended_first(run):
        looked = f"the {count(steps)} step{'s' if steps != 1 else ''} until then"
        return f"{first_rank}; no symptom in the numbers of {looked}"
    if run.state == "running":
        return f"Running, {count(steps)} step{'s' if steps != 1 else ''}, nothing wrong yet"
    if run.state == "killed":
        return f"Killed after {count(steps)} step{'s' if steps != 1 else ''}, without a symptom until then"
    names = detectors(run)
    if not names:
        return f"{count(steps)} steps without a symptom; the run does not list its detectors"
    looked = f"{len(names)} detector{'s' if len(names) != 1 else ''} looked"
    listed = f" ({', '.join(names)})" if len(names) <= NAMES_MAX else ""
    looked += f" at {count(steps)} step{'s' if steps != 1 else ''}{listed}"
    if run.ended == "failed":
        return f"{failed(run).removesuffix('.')}; no symptom in the numbers until then: {looked}"
    stall = clean(stall_before(run))
    return f"No symptom was seen{f', but {stall}' if stall else ''}: {looked}"


def ended_first(run: Run) -> str:
    """Which of several ranks ended first and how, as a clause that begins in upper case; "" if no record says."""
    first = first_end_of(run.path)
    sentence = clean(first.sentence) if first is not None else ""
    return sentence[:1].upper() + sentence[1:]


def rank_notes(run: Run) -> list[str]:
    """What differs between the ranks, and from the run before, as sentences."""
    return [f"{one[:1].upper()}{one[1:]}." for one in rank_differences(run.path)]


def failed(run: Run) -> str:
    """The error that ended the script, with its line."""
    failure, status = failure_of(run), run.facts.get("exit_status")
    if failure:
        return f"The script was {clean(failure)}."
    return f"The script failed{f' with status {clean(status)}' if status is not None else ''}."
