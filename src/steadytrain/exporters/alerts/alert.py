"""One alert: what happened, where, since when, what was done, and the next command. Redacted text, made once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from steadytrain.core.json_values import JsonValue
from steadytrain.core.model import Severity, Symptom

Event = Literal["story", "action", "end", "test"]
"""Symptoms that belong together; an intervention of the policy; the end of the run; a test message of no run."""

GOOD_END = "finished"


@dataclass(frozen=True)
class Place(JsonValue):
    """The run that alerts: its name, its folder, the host, and the job of a scheduler ("" for none)."""

    run: str
    path: str
    host: str
    job: str = ""


@dataclass(frozen=True)
class Alert(
    JsonValue,
    schema="steadytrain.alert/1",
    keys="event severity run path host job time step since_step headline what where done next ended symptoms incident "
    "title text",
):
    """What goes to services as text, and to a command as this document.

    ``step`` is the last one known when the alert was made, ``since_step`` the first one of the trouble. ``where`` is
    the first bad operation or the tensors, "" if unknown. ``ended`` is how the run ended, None while it goes on.
    """

    event: Event
    severity: Severity
    place: Place
    time: str
    step: int | None
    since_step: int | None
    headline: str
    what: str
    where: str
    done: str
    next: str
    ended: str | None = None
    symptoms: tuple[Symptom, ...] = ()
    incident: str | None = None

    @property
    def run(self) -> str:
        return self.place.run

    @property
    def path(self) -> str:
        return self.place.path

    @property
    def host(self) -> str:
        return self.place.host

    @property
    def job(self) -> str:
        return self.place.job

    @property
    def is_good(self) -> bool:
        """Whether the run ended well, and nothing above a note was found."""
        return self.ended == GOOD_END and self.severity == "note"

    @property
    def title(self) -> str:
        return f"{self.run}: {self.headline}"

    @property
    def text(self) -> str:
        """The answer first, then where to look."""
        since = "" if self.since_step is None else f"step {self.since_step:,}"
        if since and self.step is not None and self.step > self.since_step:  # type: ignore[operator]
            since += f" (now at step {self.step:,})"
        host = f"{self.host}, job {self.job}" if self.job else self.host
        lines = [
            self.what,
            *(
                f"{name}: {value}"
                for name, value in (("Where", self.where), ("Since", since), ("Done", self.done), ("Next", self.next))
                if value
            ),
            f"Run: {self.path} on {host}, {self.time}" if self.path else f"From: {host}, {self.time}",
        ]
        return "\n".join(lines)
