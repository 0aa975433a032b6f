"""Which alerts are due: one for each story, one for interventions, one at the end of the run. Pure: time is passed in.

A story waits a little, so that its alert can name the first bad operation and what was done. It is alerted once, and
once more if it becomes graver. What still waits when the run ends goes into the alert of the end.
"""

from __future__ import annotations

import shlex
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from steadytrain.core.incident import Action, Incident
from steadytrain.core.model import SEVERITIES, Severity, Symptom, Window, worst
from steadytrain.exporters.alerts.alert import GOOD_END, Alert, Event, Place
from steadytrain.exporters.alerts.settings import AlertSettings
from steadytrain.grouping.stories import MARGIN_STEPS, Story, capital, tell
from steadytrain.report.action_words import action_words
from steadytrain.report.wording import clean
from steadytrain.storage.redaction import redact_text

GATHER_S = 20.0
"""A story waits so long for its incident, whose search for the first bad operation takes as long as a few steps."""

SETTLE_S = 1.0
"""After the incident or an intervention, for what comes in the same step."""

SYMPTOMS_KEPT_MAX = 256
SYMPTOMS_SENT_MAX = 16
INCIDENTS_KEPT_MAX = 64
ACTIONS_KEPT_MAX = 64
ACTIONS_NAMED_MAX = 4
TENSORS_NAMED_MAX = 3
STORIES_NAMED_MAX = 3
WHAT_CHARACTERS_MAX = 600
CODE_CHARACTERS_MAX = 80

INTERVENTIONS = ("applied", "rolled-back", "stopped", "resumed-from")
"""Entries of the ledger that are alerted without a symptom. A skipped update belongs to its symptom."""

REFUSED = ("refused-update", "refused-rest-of-update")
ENDS = {
    "finished": "finished {after}",
    "stopped": "STOPPED {after}",
    "failed": "FAILED {after}",
    "interrupted": "interrupted {after}",
    "lost": "LOST {after} or more: its process ended without a word (killed, or out of memory)",
    "untrained": "ended, and trained nothing",
}
NO_STEP = "before the end of its first step"
END_SEVERITIES: dict[str, Severity] = {GOOD_END: "note", "interrupted": "warning"}
"""Of the others it is critical."""

Key = tuple[str, str, int]
NO_STEPS = Window(np.zeros(0, np.int64), np.zeros(0), {}, {}, np.zeros(0, np.bool_), np.zeros(0, np.bool_))


@dataclass
class _Done:
    """An intervention that no alert has named yet."""

    action: Action
    came_s: float


class AlertBook:
    """Takes what happens in a run, and gives the alerts that are due.

    Args:
        settings: which symptoms are alerted.
        place: the run.
        look: the command that shows a run or an incident, without its target; "" if there is nothing to show.
        date: the wall-clock time as text, for alerts.
        window: the recorded steps of a stream, for what came before a symptom.
    """

    def __init__(
        self,
        settings: AlertSettings,
        place: Place,
        look: str,
        date: Callable[[], str],
        window: Callable[[str], Window] = lambda stream: NO_STEPS,
    ) -> None:
        self._window = window
        self._settings = settings
        self._place = place
        self._look = look
        self._date = date
        self._symptoms: dict[Key, Symptom] = {}
        self._waiting: dict[Key, float] = {}
        self._told: dict[Key, Severity] = {}
        self._incidents: deque[tuple[float, Path, Incident]] = deque(maxlen=INCIDENTS_KEPT_MAX)
        self._done: deque[_Done] = deque(maxlen=ACTIONS_KEPT_MAX)
        self._named: deque[Action] = deque(maxlen=ACTIONS_KEPT_MAX)
        self._alerted: list[str] = []
        self._step: int | None = None

    # -- what happens ----------------------------------------------------------------------------------------------

    def reached(self, step: int) -> None:
        """A step of the run."""
        self._step = max(step, self._step or 0)

    def symptom(self, symptom: Symptom, now_s: float) -> None:
        """A symptom that is new, or has another severity."""
        key = _key(symptom)
        self._symptoms[key] = symptom
        self._waiting.setdefault(key, now_s)
        while len(self._symptoms) > SYMPTOMS_KEPT_MAX:
            oldest = next(iter(self._symptoms))
            for kept in (self._symptoms, self._waiting, self._told):
                kept.pop(oldest, None)

    def incident(self, path: Path, incident: Incident, now_s: float) -> None:
        """A bundle is whole; again when the first bad operation was found."""
        self._incidents.append((now_s, path, incident))

    def action(self, action: Action, now_s: float) -> None:
        """An entry of the ledger."""
        if action.touched and action.by == "policy":
            self._done.append(_Done(action, now_s))

    # -- what is due -----------------------------------------------------------------------------------------------

    @property
    def step(self) -> int | None:
        """The last step that is known, None if there was none."""
        return self._step

    @property
    def intervened(self) -> bool:
        """Whether an intervention waits that no alert has named."""
        return any(one.action.what in INTERVENTIONS for one in self._done)

    def due(self, now_s: float) -> list[Alert]:
        """The alerts to send now."""
        found = [self._of_story(story) for story in self._unalerted() if self._is_ready(story, now_s)]
        stray = self._stray(now_s)
        return [*found, self._of_actions(stray)] if stray else found

    def end(self, ended: str, why: str, note: str = "") -> Alert:
        """The alert of the end, with all that waits. ``note``: what is wrong with the record of the run."""
        waiting = sorted(self._unalerted(), key=lambda story: -SEVERITIES.index(story.severity))
        lead = self._with_what_came_before(waiting[0]) if waiting else None
        actions = [*self._named, *(one.action for one in self._done)]
        grave = [symptom.severity for symptom in self._symptoms.values()]
        severity = worst([END_SEVERITIES.get(ended, "critical"), *grave, *(("warning",) if note else ())])
        assert severity is not None
        path, incident = self._incident_of(lead) if lead is not None else (None, None)
        if ended == "stopped":
            path, incident = self._that_stopped() or (path, incident)
        how = self._how(ended, incident, why)
        why = why if ended in ("failed", "untrained") else ""
        before = self._before(waiting[1:]) if lead is None or self._alerted or waiting[1:] else ""
        if ended == "stopped":
            actions.append(Action(self._step or 0, "stop", "stopped", ""))
        return self._alert(
            "end",
            severity,
            headline=how + (f": {_gravest(lead)}" if lead is not None else self._after_alerts()),
            what=_sentences(how, why, lead.text if lead is not None else "", before, note),
            where=_where(incident, lead.symptoms if lead is not None else ()),
            done=self._done_text([] if incident is None else [incident.action], actions),
            since=_since(lead) if lead is not None else None,
            symptoms=lead.symptoms if lead is not None else (),
            incident=path,
            ended=ended,
        )

    def _that_stopped(self) -> tuple[Path, Incident] | None:
        """The incident of the refused update, else the newest one. A later one of the same story may be a bundle of
        finite steps."""
        refused = [one for one in self._incidents if one[2].action.what in REFUSED]
        found = (refused or list(self._incidents))[-1:]
        return (found[0][1], found[0][2]) if found else None

    def _unalerted(self) -> list[Story]:
        """The stories that are to be alerted, and were not at their severity; the others stop waiting."""
        found: list[Story] = []
        for stream in dict.fromkeys(key[1] for key in self._waiting):
            own = [symptom for symptom in self._symptoms.values() if symptom.stream == stream]
            for story in tell(own, NO_STEPS):
                keys = list(map(_key, story.symptoms))
                if not any(key in self._waiting for key in keys):
                    continue
                wanted = [one.severity for one in story.symptoms if self._settings.wants(one.name, one.severity)]
                grave, told = worst(wanted), worst([self._told[key] for key in keys if key in self._told])
                if grave is not None and (told is None or SEVERITIES.index(grave) > SEVERITIES.index(told)):
                    found.append(story)
                    continue
                for key in keys:
                    self._waiting.pop(key, None)
                    if told is not None:
                        self._told[key] = told
        return found

    def _is_ready(self, story: Story, now_s: float) -> bool:
        keys = set(map(_key, story.symptoms))
        came_s = min(self._waiting[key] for key in keys if key in self._waiting)
        if now_s >= came_s + GATHER_S:
            return True
        whole = [time_s for time_s, _, incident in self._incidents if keys & set(map(_key, incident.symptoms))]
        whole += [one.came_s for one in self._done if _belongs(one.action, story)]
        return bool(whole) and now_s >= max(whole) + SETTLE_S

    def _with_what_came_before(self, story: Story) -> Story:
        """The story as the recorded steps tell it: a learning rate that rose before it."""
        found = tell(story.symptoms, self._window(story.symptoms[0].stream))
        return next((one for one in found if one.first_step == story.first_step), story)

    def _of_story(self, story: Story) -> Alert:
        story = self._with_what_came_before(story)
        for symptom in story.symptoms:
            self._waiting.pop(_key(symptom), None)
            self._told[_key(symptom)] = story.severity
        path, incident = self._incident_of(story)
        actions = [one.action for one in self._done if _belongs(one.action, story)]
        self._settle(actions)
        names = list(dict.fromkeys(symptom.name for symptom in story.symptoms if symptom.severity == story.severity))
        began = min(one.first_step for one in story.symptoms if one.name == names[0])
        headline = f"{story.severity.upper()} {names[0]} at step {began:,}"
        self._alerted.append(f"{names[0]} at step {began:,}")
        return self._alert(
            "story",
            story.severity,
            headline=headline,
            what=story.text,
            where=_where(incident, story.symptoms),
            done=self._done_text([] if incident is None else [incident.action], actions),
            since=_since(story),
            symptoms=story.symptoms,
            incident=path,
        )

    def _stray(self, now_s: float) -> list[Action]:
        """The interventions that belong to no story that waits."""
        waiting = self._unalerted()
        own = [one for one in self._done if not any(_belongs(one.action, story) for story in waiting)]
        if any(one.action.what in INTERVENTIONS for one in own):
            return [one.action for one in own] if now_s >= max(one.came_s for one in own) + SETTLE_S else []
        self._settle([one.action for one in own])
        return []

    def _of_actions(self, actions: Sequence[Action]) -> Alert:
        self._settle(actions)
        last = actions[-1]
        done = self._done_text([], actions)
        return self._alert(
            "action",
            "warning",
            headline=f"INTERVENED after step {last.step:,}: {_named(actions)}",
            what=_sentences(next(action.reason for action in actions)),
            where="",
            done=done,
            since=None,
            step=last.step,
        )

    def _settle(self, actions: Sequence[Action]) -> None:
        for one in [one for one in self._done if one.action in actions]:
            self._done.remove(one)
            self._named.append(one.action)

    # -- in words --------------------------------------------------------------------------------------------------

    def _alert(
        self,
        event: Event,
        severity: Severity,
        *,
        since: int | None,
        step: int | None = None,
        symptoms: Sequence[Symptom] = (),
        incident: Path | None = None,
        ended: str | None = None,
        **texts: str,
    ) -> Alert:
        target = str(incident) if incident is not None else self._place.path
        shown = {name: _shown(text) for name, text in texts.items()}
        return Alert(
            event,
            severity,
            self._place,
            self._date(),
            step if step is not None else self._step,
            since,
            symptoms=tuple(symptoms[:SYMPTOMS_SENT_MAX]),
            incident=None if incident is None else str(incident),
            ended=ended,
            next=f"{self._look} {shlex.quote(target)}" if self._look else "",
            **shown,
        )

    def _how(self, ended: str, incident: Incident | None, why: str) -> str:
        after = f"after {self._step:,} step{'' if self._step == 1 else 's'}" if self._step else NO_STEP
        if ended == "stopped" and incident is not None and incident.action.what in REFUSED:
            after = f"before the update of step {incident.step:,}"
        if ended == "lost" and why:
            return f"LOST {after}: {why}"
        how = ENDS.get(ended, f"{ended} {{after}}").format(after=after)
        return how if self._step else how.replace(f"{NO_STEP} or more", NO_STEP)

    def _after_alerts(self) -> str:
        """Of a run that finished: what was alerted last, so that its title does not read as if all were well."""
        return f", with {self._alerted[-1]}" if self._alerted else ""

    def _before(self, more: Sequence[Story]) -> str:
        """What else there was: alerted before, or waiting too."""
        counts = [one.severity for one in self._symptoms.values()]
        critical, warnings = counts.count("critical"), counts.count("warning")
        grave = [f"{critical} critical"] if critical else []
        grave += [f"{warnings} warning{'s' if warnings > 1 else ''}"] if warnings else []
        if not grave:
            return "no symptom above a note was found" if self._step else ""
        names = [*self._alerted, *(f"{story.names[0]} at step {story.first_step:,}" for story in more)]
        names = names or [
            f"{one.name} at step {one.first_step:,}" for one in self._symptoms.values() if one.severity != "note"
        ]
        rest = f" and {len(names) - STORIES_NAMED_MAX} more" if len(names) > STORIES_NAMED_MAX else ""
        named = f"; {', '.join(names[:STORIES_NAMED_MAX])}{rest}" if names else ""
        return f"symptoms: {', '.join(grave)}{named}"

    def _incident_of(self, story: Story) -> tuple[Path | None, Incident | None]:
        """The newest incident with one of its symptoms."""
        keys = set(map(_key, story.symptoms))
        for _, path, incident in reversed(self._incidents):
            if keys & set(map(_key, incident.symptoms)):
                return path, incident
        return None, None

    def _done_text(self, own: Sequence[Action], actions: Sequence[Action]) -> str:
        touching = [action for action in (*own, *actions) if action.touched]
        words = list(dict.fromkeys(action_words(action) for action in touching))
        if not words:
            return "nothing was changed"
        more = f" and {len(words) - ACTIONS_NAMED_MAX} more" if len(words) > ACTIONS_NAMED_MAX else ""
        return ", ".join(words[:ACTIONS_NAMED_MAX]) + more


def _gravest(story: Story) -> str:
    """The first symptom of the story that is as grave as the story."""
    return next((one.name for one in story.symptoms if one.severity == story.severity), story.names[0])


def _since(story: Story) -> int:
    """The first step of the trouble: a note is none."""
    grave = [one.first_step for one in story.symptoms if one.severity != "note"]
    return min(grave, default=story.first_step)


def _named(actions: Sequence[Action]) -> str:
    names = [action.intervention or action_words(action) for action in actions if action.what in INTERVENTIONS]
    return ", ".join(dict.fromkeys(names))


def _belongs(action: Action, story: Story) -> bool:
    return story.first_step <= action.step <= story.last_step + MARGIN_STEPS


def _where(incident: Incident | None, symptoms: Sequence[Symptom]) -> str:
    """The first bad operation with its line, or what came in with the batch; else the line that a symptom names, else
    its tensors or modules."""
    located = incident.finding.located if incident is not None else None
    if located is not None:
        module = f" in {located.module}" if located.module else ""
        line = f", {located.file}:{located.line}" if located.file else ""
        line += f": {located.code.strip()[:CODE_CHARACTERS_MAX]}" if line and located.code else ""
        return f"{located.operation_said} made {located.produced}{module} ({located.phase}){line}"
    if incident is not None and incident.finding.came_in:
        return incident.finding.came_in
    at = next((symptom.at for symptom in symptoms if symptom.at is not None), None)
    if at is not None:
        return f"{at.place}: {at.code.strip()[:CODE_CHARACTERS_MAX]}" if at.code else at.place
    named = next((symptom for symptom in symptoms if symptom.tensors), None)
    tensors = named.tensors if named is not None else ()
    lead = "modules " if named is not None and any(one.startswith("modules") for one in named.signals) else ""
    more = f" and {len(tensors) - TENSORS_NAMED_MAX} more" if len(tensors) > TENSORS_NAMED_MAX else ""
    return lead + ", ".join(tensors[:TENSORS_NAMED_MAX]) + more if tensors else ""


def _sentences(*texts: str) -> str:
    """Texts as sentences, without those that are empty."""
    whole = [text.strip() for text in texts if text.strip()]
    return " ".join(f"{capital(text)}{'' if text.endswith('.') else '.'}" for text in whole)


def _shown(text: str) -> str:
    """Redacted, in one line, without control characters, and not too long."""
    return clean(" ".join(redact_text(text).split()), length_max=WHAT_CHARACTERS_MAX)


def _key(symptom: Symptom) -> Key:
    return symptom.name, symptom.stream, symptom.first_step
