"""One message that shows that alerts arrive: sent now, to every destination, with an answer for each.

For a process that does not train: Apprise is imported here.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from steadytrain.exporters.alerts.alert import Alert, Place
from steadytrain.exporters.alerts.command_call import CommandCall
from steadytrain.storage.redaction import redact_text

ANSWER_S_MAX = 40.0
"""More than a command may take (``command_call.COMMAND_S_MAX``)."""

Send = Callable[[Alert, str], None]


def send_test(urls: Sequence[str], command: str, environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Send a test message to each of ``urls`` and to ``command``, all at once.

    Returns the name of each destination with why the message did not arrive, "" if it did.

    Raises:
        ValueError: Apprise cannot use one of the addresses. Nothing was sent then.
    """
    from steadytrain.exporters.alerts.services import Service

    services = [Service(url) for url in urls]
    named: list[tuple[str, Send]] = [(one.name, one.send) for one in services]
    if command:
        call = CommandCall(command, environment)
        named.append((call.name, call.send))
    alert = test_alert()
    waiting = [(name, _Sending(send, alert)) for name, send in named]
    return [(name, sending.why()) for name, sending in waiting]


def test_alert() -> Alert:
    """The test message of this machine."""
    host = redact_text(os.uname().nodename)
    return Alert(
        event="test",
        severity="note",
        place=Place("steadytrain", "", host),
        time=datetime.now().astimezone().isoformat(sep=" ", timespec="seconds"),
        step=None,
        since_step=None,
        headline="test message",
        what=f"This is a test: alerts of runs on {host} arrive here.",
        where="",
        done="",
        next="",
    )


class _Sending:
    """One message on its way, on a thread that the process does not wait for."""

    def __init__(self, send: Send, alert: Alert) -> None:
        self._why: str | None = None
        self._thread = threading.Thread(target=self._send, args=(send, alert), daemon=True)
        self._thread.start()

    def _send(self, send: Send, alert: Alert) -> None:
        try:
            send(alert, "")
        except Exception as error:
            self._why = redact_text(" ".join(str(error).split()) or type(error).__name__)
        else:
            self._why = ""

    def why(self) -> str:
        """Why it did not arrive, "" if it did. Waits for the answer."""
        self._thread.join(ANSWER_S_MAX)
        return f"no answer within {ANSWER_S_MAX:g} s" if self._why is None else self._why
