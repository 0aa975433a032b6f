"""The services of Apprise: what an address leads to, and sending to it. Apprise is imported here alone, never in the
process that trains.

Apprise may log an address, so its log goes nowhere. After a failure its last warning is reported, without any part of
the address.
"""

from __future__ import annotations

import inspect
import logging
import re
import threading
from typing import Any, final
from urllib.parse import unquote

import apprise
from apprise.manager_plugins import NotificationManager

from steadytrain.core.plugins import nearest
from steadytrain.exporters.addresses import PORT_MAX
from steadytrain.exporters.alerts.alert import Alert
from steadytrain.exporters.exporter import ExporterError
from steadytrain.storage.redaction import redact_text

WHY_CHARACTERS_MAX = 200
SECRET_CHARACTERS_MIN = 3
"""Parts of an address that are shorter are words such as ``to``: taking them out would spoil every sentence."""

_NO_HOST = re.compile(r"[^:/]+:///")
_PARTS = re.compile(r"[/:@?&=,#;]+")
_TYPES = {"note": "info", "warning": "warning", "critical": "failure"}
_WEB = ("http", "https")
_ACTIVE = re.compile(r"(?<=@)(?=\w)|(?<=\])(?=[(\[])|(?<=<)(?=[!@#]|users/)")
"""Where chats find the mention of a person or a channel, or a link with a text of its own."""

_OURS = ("Next: ", "Run: ")
"""Lines that are pasted: they stay as they are."""

_GAP = "\u200b"

_warnings = threading.local()


class _Keep(logging.Handler):
    """Keeps the newest warning of the thread that sends."""

    def emit(self, record: logging.LogRecord) -> None:
        _warnings.last = record.getMessage()


_OWN_LOGS = "log_callback" in inspect.signature(apprise.Apprise.notify).parameters
"""Apprise 2 sends on threads of its own, and gives their warnings to a callback."""

_log = logging.getLogger("apprise")
_log.handlers[:] = [_Keep(logging.WARNING)]
_log.setLevel(logging.WARNING)
_log.propagate = False


@final
class Service:
    """One address.

    Raises:
        ValueError: Apprise cannot use it, it names no host, or no machine has its port. The message holds no part of it
            but its scheme.
    """

    def __init__(self, url: str) -> None:
        scheme = url.partition("://")[0].lower()
        plugin = apprise.Apprise.instantiate(url, asset=_asset(), suppress_exceptions=True)
        if plugin is None:
            raise ValueError(_why_not(scheme))
        if plugin.port is not None and not 1 <= plugin.port <= PORT_MAX:
            raise ValueError(f"{scheme}://...: its port is not between 1 and {PORT_MAX}")
        own_host = "{host}" in str(getattr(plugin, "templates", ())) and getattr(plugin, "host", None)
        if own_host and _NO_HOST.match(url):
            # Apprise takes the first part of the path, often a token, for the host: it would be looked up and shown.
            raise ValueError(f"{scheme}:///...: no host stands in it; write {scheme}://HOST/PATH")
        self._parts = _secret_parts(url, plugin)
        self._sender = apprise.Apprise(asset=_asset())
        self._sender.add(plugin)
        port = f":{plugin.port}" if own_host and plugin.port else ""
        self.name = f"{scheme}://{plugin.host}{port}" if own_host else str(plugin.service_name).lower()

    def send(self, alert: Alert, held: str) -> None:
        """Send an alert, with the line about those that were held back.

        Raises:
            ExporterError: it did not arrive.
        """
        warnings: list[str] = []
        own = {"log_callback": lambda entry, plugin: warnings.append(entry.message)} if _OWN_LOGS else {}
        _warnings.last = ""
        text = inert("\n\n".join(filter(None, [alert.text, held])))
        kind = "success" if alert.is_good else _TYPES[alert.severity]
        if not self._sender.notify(body=text, title=inert(alert.title), notify_type=kind, body_format="text", **own):
            last = warnings[-1] if warnings else _warnings.last
            raise ExporterError(self._shown(last).rstrip(".") or "the service did not take it")

    def _shown(self, warning: str) -> str:
        text = " ".join(warning.split())
        for part in self._parts:
            text = text.replace(part, "[redacted]")
        return redact_text(text)[:WHY_CHARACTERS_MAX]


def inert(text: str) -> str:
    """``text`` in which a chat finds nobody to call and no disguised link. Apprise escapes HTML where it is shown.

    Messages, names of tensors and lines of code come from scripts and data: ``@everyone`` in one must call nobody.
    """
    lines = text.split("\n")
    return "\n".join(line if line.startswith(_OURS) else _ACTIVE.sub(_GAP, line) for line in lines)


def _asset() -> Any:
    return apprise.AppriseAsset(app_id="steadytrain", app_desc="steadytrain", app_url="", async_mode=False)


def _secret_parts(url: str, plugin: Any) -> list[str]:
    """Every part of an address but its scheme and, where it is one, its host; the longest first."""
    host = plugin.host if "{host}" in str(getattr(plugin, "templates", ())) else None
    words = {word for word in _PARTS.split(url.partition("://")[2]) if len(word) >= SECRET_CHARACTERS_MIN}
    words -= {host, "localhost"}
    return sorted({url, *words, *map(unquote, words)}, key=len, reverse=True)


def _why_not(scheme: str) -> str:
    known = [name for name in NotificationManager().schemas() if name]
    if scheme in _WEB:
        return f"{scheme}://...: no address of a known service; a web hook of your own is json{scheme[4:]}://HOST/PATH"
    if scheme not in known:
        advice = nearest(scheme, known, otherwise="see docs/alerts.md")
        return f"{scheme}://...: Apprise knows no such service; {advice}"
    return f"{scheme}://...: the rest of the address is not what {scheme} needs (host, user or token)"
