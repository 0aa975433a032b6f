"""One destination of alerts with its queue and its thread: rate limit, quiet hours, and what happens when it fails.

A destination that hangs holds up no other one. What could not be sent waits, is tried again, and then goes with the
next alert as one line; the last message of a run is sent whatever the hour.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import final

from steadytrain.core.model import SEVERITIES
from steadytrain.exporters.alerts.alert import Alert
from steadytrain.exporters.alerts.settings import QuietHours

WAITING_MAX = 64
HELD_NAMED_MAX = 5
TRIES_MAX = 3
RETRY_S = (15.0, 60.0)
"""A server that starts again is back within a minute."""

LAST_RETRY_S = 2.0
"""At the end of a run nothing more comes that a failed message could go with."""

POLL_S = 1.0
HOUR_S = 3600.0

Send = Callable[[Alert, str], None]
Tell = Callable[[str], None]


@dataclass
class Limits:
    """When a destination may get a message. ``hour`` gives the local time of day."""

    per_hour: int
    quiet: QuietHours | None = None
    clock: Callable[[], float] = time.monotonic
    hour: Callable[[], datetime] = datetime.now
    _sent_s: deque[float] = field(default_factory=deque)

    def allow(self) -> bool:
        """Whether one may be sent now."""
        now_s = self.clock()
        while self._sent_s and self._sent_s[0] <= now_s - HOUR_S:
            self._sent_s.popleft()
        if self.quiet is not None and self.quiet.hold(self.hour().time()):
            return False
        return len(self._sent_s) < self.per_hour

    def used(self) -> None:
        """One was sent, or tried."""
        self._sent_s.append(self.clock())


@final
class Channel:
    """One service or the command.

    Args:
        name: its name in messages; holds no secret.
        send: sends one alert with a line about those that were held back; raises if it did not arrive.
        limits: when it may.
        tell: gets one line, once, when the destination fails.
        log: gets one line for every failure.
    """

    def __init__(self, name: str, send: Send, limits: Limits, tell: Tell, log: Tell) -> None:
        self.name = name
        self._send = send
        self._limits = limits
        self._tell = tell
        self._log = log
        self._waiting: deque[Alert] = deque(maxlen=WAITING_MAX)
        self._lost = 0
        self._tries = 0
        self._next_try_s = 0.0
        self._told = False
        self._closing = False
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._work, name=f"alerts to {name}", daemon=True)
        self._thread.start()

    def put(self, alert: Alert) -> None:
        """Hand over an alert. Returns at once."""
        with self._wake:
            self._lost += len(self._waiting) == WAITING_MAX
            self._waiting.append(alert)
            self._wake.notify()

    def ask_to_close(self) -> None:
        """Send what waits, whatever the limits say, and end."""
        with self._wake:
            self._closing = True
            self._next_try_s = 0.0
            self._wake.notify()

    def wait_closed(self, wait_s: float) -> bool:
        """Whether it has ended within ``wait_s``."""
        self._thread.join(max(0.0, wait_s))
        return not self._thread.is_alive()

    def _work(self) -> None:
        while True:
            with self._wake:
                while not self._is_due():
                    if self._closing and not self._waiting:
                        return
                    self._wake.wait(POLL_S if self._waiting else None)
                alerts, lost, self._lost = list(self._waiting), self._lost, 0
                self._waiting.clear()
            self._try(alerts, lost)

    def _is_due(self) -> bool:
        if not self._waiting or self._limits.clock() < self._next_try_s:
            return False
        return self._closing or self._limits.allow()

    def _try(self, alerts: list[Alert], lost: int) -> None:
        self._limits.used()
        lead = _lead(alerts)
        try:
            self._send(lead, _held(alerts, lead, lost))
        except Exception as error:
            self._failed(alerts, lost, " ".join(str(error).split()) or type(error).__name__)
        else:
            self._tries = 0

    def _failed(self, alerts: list[Alert], lost: int, why: str) -> None:
        """Keep them for the next try. After the last one the newest is given up, and what is left is counted."""
        self._tries += 1
        self._log(f"{self.name}: {why}")
        if not self._told:
            self._told = True
            self._tell(f"warning: an alert did not reach {self.name}: {why}")
        with self._wake:
            if self._tries >= TRIES_MAX:
                self._tries, self._lost = 0, self._lost + lost + len(alerts)
                return
            self._waiting.extendleft(reversed(alerts))
            self._lost += lost
            wait_s = LAST_RETRY_S if self._closing else RETRY_S[min(self._tries, len(RETRY_S)) - 1]
            self._next_try_s = self._limits.clock() + wait_s
            if self._closing:
                self._wake.wait(wait_s)  # nothing else wakes it


def _lead(alerts: list[Alert]) -> Alert:
    """The alert that is sent in full: the end of the run, else the gravest, the newest of several."""
    return max(enumerate(alerts), key=lambda one: (one[1].event == "end", SEVERITIES.index(one[1].severity), one[0]))[1]


def _held(alerts: list[Alert], lead: Alert, lost: int) -> str:
    """A line about the others."""
    others = [alert.headline for alert in alerts if alert is not lead]
    more = max(0, len(others) - HELD_NAMED_MAX) + lost
    named = "; ".join(others[-HELD_NAMED_MAX:])
    if not others:
        return f"Not sent before: {lost} alerts" if lost else ""
    return f"Held back until now: {named}" + (f"; and {more} more" if more else "")
