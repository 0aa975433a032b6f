"""What the user wants to be alerted about, and where: checked when it is given. Imports no library.

Addresses may hold passwords and tokens. They stay in memory and in the pipe to our own process, and no message names
them: a service is named by its scheme and, where it has one, its host (``services``).
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import time
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.core.extras import install
from steadytrain.core.model import SEVERITIES, Severity

NOTIFY_VARIABLE = "STEADYTRAIN_NOTIFY"
"""Addresses, separated by spaces: a command line can be read by other users of the machine."""

PER_HOUR_DEFAULT = 12
PER_HOUR_MAX = 3600
URLS_MAX = 16
URL_CHARACTERS_MAX = 4096
ALERTED: tuple[Severity, ...] = ("warning", "critical")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,31})://")
_HOURS = re.compile(r"(\d{1,2}):(\d{2})-(\d{1,2}):(\d{2})")


@dataclass(frozen=True)
class QuietHours:
    """A part of the day, in minutes since midnight of the local time; it may go past midnight."""

    begin: int
    end: int

    def hold(self, now: time) -> bool:
        """Whether it is quiet at ``now``."""
        minute = 60 * now.hour + now.minute
        if self.begin <= self.end:
            return self.begin <= minute < self.end
        return minute >= self.begin or minute < self.end


def quiet_hours(text: str) -> QuietHours:
    """Read ``22:00-07:00``.

    Raises:
        UsageError: it is no such text, or the hours are empty.
    """
    match = _HOURS.fullmatch(text.strip())
    hours = [int(one) for one in match.groups()] if match else []
    if not hours or max(hours[0], hours[2]) > 23 or max(hours[1], hours[3]) > 59 or hours[:2] == hours[2:]:
        raise UsageError(f"--notify-quiet {text!r}: no hours of a day; write them as 22:00-07:00")
    return QuietHours(60 * hours[0] + hours[1], 60 * hours[2] + hours[3])


@dataclass(frozen=True)
class AlertSettings:
    """Where alerts go, and which.

    Args:
        urls: addresses of services in the form of Apprise.
        command: a shell command that gets each alert as JSON on its standard input.
        at: lowest severity of a symptom that is alerted.
        quiet: hours in which services get nothing but the end of the run; "" for none.
        per_hour: messages to one service, or calls of the command, within an hour.
        responses: what the policy does for symptoms, by name. One with ``alert`` is alerted as a warning too, one with
            ``note`` never.
        response: the same for all others.
    """

    urls: tuple[str, ...] = field(default=(), repr=False)
    command: str = field(default="", repr=False)
    at: Severity = "critical"
    quiet: str = ""
    per_hour: int = PER_HOUR_DEFAULT
    responses: Mapping[str, str] = field(default_factory=dict)
    response: str = ""

    def __post_init__(self) -> None:
        if self.at not in ALERTED:
            raise UsageError(f"--notify-at {self.at}: one of {', '.join(ALERTED)}")
        if not 1 <= self.per_hour <= PER_HOUR_MAX:
            raise UsageError(f"--notify-per-hour {self.per_hour}: must be between 1 and {PER_HOUR_MAX:,}")
        if self.quiet:
            quiet_hours(self.quiet)

    @property
    def wanted(self) -> bool:
        return bool(self.urls or self.command)

    def wants(self, name: str, severity: Severity) -> bool:
        """Whether a symptom of that name and severity is alerted."""
        response = self.responses.get(name, self.response)
        if severity == "note" or response == "note":
            return False
        return response == "alert" or SEVERITIES.index(severity) >= SEVERITIES.index(self.at)

    def to_json(self) -> dict[str, Any]:
        """For our own process. Holds secrets: it is not to be written anywhere."""
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> AlertSettings:
        return AlertSettings(**{**data, "urls": tuple(data["urls"])})


def check_urls(urls: Sequence[str]) -> tuple[str, ...]:
    """``urls`` without repetitions, if each has the form of an address and Apprise is installed. Imports nothing.

    Raises:
        UsageError: it is not so. The message holds no part of an address but its scheme.
    """
    if isinstance(urls, str):
        urls = urls.split()
    found = tuple(dict.fromkeys(url.strip() for url in urls))
    for number, url in enumerate(found, start=1):
        match = _SCHEME.match(url)
        if match is None or any(sign.isspace() or not sign.isprintable() for sign in url):
            which = f"address {number} of {len(found)}" if len(found) > 1 else "its address"
            raise UsageError(f"--notify: {which} has not the form SERVICE://..., such as json://HOST:PORT/PATH")
        if len(url) > URL_CHARACTERS_MAX:
            raise UsageError(f"--notify {match[1]}://...: longer than {URL_CHARACTERS_MAX:,} characters")
    if len(found) > URLS_MAX:
        raise UsageError(f"--notify: {len(found)} addresses; at most {URLS_MAX}")
    if found and not apprise_is_installed():
        raise UsageError(f"--notify needs Apprise, which is not installed here; {install('notify')}")
    return found


def check_command(command: str) -> str:
    """``command`` if a shell can begin to run it.

    Raises:
        UsageError: it is blank, or its quotes do not match. The message holds no part of it.
    """
    if not command:
        return ""
    try:
        words = shlex.split(command, comments=True)
    except ValueError as error:
        raise UsageError(f"--on-incident: no shell command: {str(error).lower()}") from None
    if not words or "\0" in command:
        raise UsageError("--on-incident: the command is empty")
    return command


def urls_of_environment() -> tuple[str, ...]:
    """The addresses that the environment names."""
    return tuple(os.environ.get(NOTIFY_VARIABLE, "").split())


def apprise_is_installed() -> bool:
    try:
        return importlib.util.find_spec("apprise") is not None
    except (ImportError, ValueError):
        return False
