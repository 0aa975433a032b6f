"""What is said when a watched script is over. Plain words; silence is never called health."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from steadytrain.core.model import SEVERITIES
from steadytrain.core.own_command import own_command
from steadytrain.detection.other_ranks import of_other_ranks
from steadytrain.grouping.catalog import needed_tables
from steadytrain.grouping.stories import Story
from steadytrain.report.action_words import counted
from steadytrain.storage.ranks_of_run import launched_rank, launched_ranks, part_sentence
from steadytrain.storage.run_folder import RUN_FILE
from steadytrain.storage.run_search import short_name

if TYPE_CHECKING:
    from steadytrain.capture.step.watcher import Watcher


NAMES_MAX = 6
STORIES_MAX = 4


def summary(watcher: Watcher | None, run_dir: Path) -> list[str]:
    """A few lines: number of steps, symptoms (as stories if more than one), and the run folder."""
    recorded = os.path.isfile(run_dir / RUN_FILE)  # unlike Path's, it does not raise
    look = f"{own_command()} show {short_name(run_dir)}"
    if watcher is None or not watcher.streams:
        of_others = recorded and (watcher is None or not watcher.has_folder)
        seen = f"recorded by the processes that the script started; next: {look}" if of_others else None
        failure = watcher.failure if watcher is not None else None
        return ["; ".join(filter(None, [failure, seen or _nothing_seen(watcher)]))]
    if watcher.stopped is not None:
        return []
    steps = max(stream.own_steps + stream.updates_before for stream in watcher.streams)
    if not steps and not watcher.symptoms:
        ended = [watcher.failure] if watcher.failure is not None else []
        lines = [_never_updated(watcher) or "no step was seen to its end: no detector could look at anything"]
        return ["; ".join([*lines, *ended, *([f"next: {look}"] if recorded else [])])]
    raised = Counter(symptom.name for symptom in watcher.symptoms)
    recorded_steps = watcher.recorded_steps
    seen = _seen(watcher, steps) + (f", {recorded_steps} recorded" if recorded_steps is not None else "")
    told = _told(watcher.stories) if len(watcher.symptoms) > 1 else []
    told += [line for line in watcher.let_go if line[1:] not in " ".join(told)]  # a sentence begins with a capital
    told += _lowered(watcher)
    waiting, idle = _unable(watcher, steps)
    by = _by(watcher.detector_names, {*waiting, *idle})
    if raised:
        verdict = f"symptoms: {', '.join(_times(raised))} ({_counts(watcher)})"
    elif watcher.failure is not None:
        verdict = f"nothing was wrong with the numbers until then{by}"
    else:
        verdict = f"no symptom{by}"
    if watcher.notes:
        verdict += f"; {_of(len(watcher.notes), 'note')} on the watch itself above"
    lines = [f"{seen}; {verdict}", *told, *of_other_ranks(run_dir, list(raised)), *_not_looked(waiting, idle)]
    done = counted(watcher.recorder.actions)
    if done and recorded:
        lines.append(f"steadytrain changed this run: {done}; the ledger lists each action")
    ended = [watcher.failure] if watcher.failure is not None else []
    if watcher.has_folder and not recorded and launched_rank() == 0:
        ended.append(f"the run folder {run_dir} is gone: it was deleted or replaced during the run, with its records")
    if not recorded and watcher.has_folder and (part := part_sentence(run_dir, launched_ranks())):
        ended, recorded = [*ended, part], True
    last = "; ".join([*ended, f"next: {look}"] if recorded else ended)
    return [*lines, last] if last else lines


def _lowered(watcher: Watcher) -> list[str]:
    """Notes that were said as warnings while the script ran, and how they came to be notes."""
    found = []
    for symptom in watcher.symptoms:
        said = watcher.recorder.told.get((symptom.name, symptom.stream, symptom.first_step))
        if symptom.severity == "note" and said in ("warning", "critical"):
            before = "critical" if said == "critical" else "a warning"
            found.append(f"note (no longer {before}): {symptom.message}")
    return found[:STORIES_MAX]


def _counts(watcher: Watcher) -> str:
    """How many symptoms of each severity, gravest first."""
    found = [symptom.severity for symptom in watcher.symptoms]
    counts = {one: found.count(one) for one in reversed(SEVERITIES) if one in found}
    return ", ".join(f"{number} {one}" if one == "critical" else _of(number, one) for one, number in counts.items())


def _times(raised: Mapping[str, int]) -> list[str]:
    """The names, and how often those came that came more than once: together as many as the severities count."""
    return [name if number == 1 else f"{name} ({number} times)" for name, number in raised.items()]


def _of(number: int, word: str) -> str:
    return f"{number} {word if number == 1 else f'{word}s'}"


def _unable(watcher: Watcher, steps: int) -> tuple[Mapping[str, int], list[str]]:
    """The detectors that could not look: those with too few steps, and those whose signals the run lacks."""
    waiting = watcher.recorder.too_short_for(steps)
    return waiting, [name for name in watcher.recorder.idle_detectors if name not in waiting]


def _by(names: Sequence[str], unable: Collection[str]) -> str:
    """By which detectors, where only a few of them looked, or none; "" where many did."""
    looked = [name for name in names if name not in unable]
    if len(looked) > NAMES_MAX:
        return ""
    return f" as far as {', '.join(looked)} could look" if looked else ": no detector could look"


def _not_looked(waiting: Mapping[str, int], idle: Sequence[str]) -> list[str]:
    parts = [f"{name} needs {needed:,} {'step' if needed == 1 else 'steps'}" for name, needed in waiting.items()]
    if len(parts) > NAMES_MAX:
        parts = [f"{len(parts)} detectors need more steps, {min(waiting.values()):,} to {max(waiting.values()):,}"]
    unevaluated = [name for name in idle if needed_tables(name) == {"metrics"}]
    others = [name for name in idle if name not in unevaluated]
    parts += [f"no evaluation metric was recorded for {', '.join(unevaluated)}"] if unevaluated else []
    told = ", ".join(others) if len(others) <= NAMES_MAX else f"{len(others)} detectors, {others[0]} to {others[-1]}"
    parts += [f"nothing was measured for {told}"] if others else []
    return [f"could not be looked for: {'; '.join(parts)}"] if parts else []


def _seen(watcher: Watcher, steps: int) -> str:
    """How many steps were seen: of trainings one after the other, whose models are gone, all of them."""
    if len(watcher.streams) > 1 and any(not stream.joined for stream in watcher.streams):
        every = sum(stream.own_steps + stream.updates_before for stream in watcher.streams)
        return f"{every} steps of {len(watcher.streams)} optimizers seen"
    return f"{steps} step{'' if steps == 1 else 's'} seen"


def _told(stories: Sequence[Story]) -> list[str]:
    """The stories above a note in the order in which they came."""
    grave = [story for story in stories if story.severity != "note"]
    lines = [f"{story.severity}: {story.text}" for story in grave[:STORIES_MAX]]
    return [*lines, f"and {len(grave) - STORIES_MAX} more stories"] if len(grave) > STORIES_MAX else lines


def _nothing_seen(watcher: Watcher | None) -> str:
    if watcher is None:
        reason = (
            "the script never imported torch" if "torch" not in sys.modules else "torch was there, the watch was not"
        )
    elif watcher.hand.told:
        reason = "the updates are those of the note above"
    elif never := _never_updated(watcher):
        return never
    elif watcher.backward_calls:
        reason = (
            f"{watcher.backward_calls} backward passes and no torch.optim optimizer step: the weights are updated by "
            "hand (or inside compiled code)"
        )
    else:
        reason = "torch was imported, but no backward pass and no optimizer step was seen"
    return f"no PyTorch training was seen: {reason}; nothing was recorded or guarded"


def _never_updated(watcher: Watcher) -> str:
    """A warning if an optimizer holds the weights that got gradients, and none of them was ever updated; else ""."""
    if watcher.hand.unused is None:
        return ""
    return (
        f"warning: no update was made in {watcher.backward_calls} backward passes: {watcher.hand.unused} holds the "
        "weights and never made a step, so nothing was trained, recorded or guarded; is `optimizer.step()` missing?"
    )
