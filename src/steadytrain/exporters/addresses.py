"""The addresses that the environment gives to the tools of a run: looked at before the script starts, because a run
that sends nothing may be noticed only at its end. Whether something answers there is for the run to find out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlsplit

from steadytrain.core.errors import UsageError
from steadytrain.exporters import AUTO, NONE
from steadytrain.exporters.exporter import HOST_PORT, HTTP_URL, MILLISECONDS, TRACKER, known_tools
from steadytrain.storage.redaction import redact_text

PORT_MAX = 65535
VALUE_CHARACTERS_MAX = 80
_PORT = re.compile(r"[0-9]{1,5}")
_HOST = re.compile(r"\[[0-9A-Fa-f:.%\w]{2,60}\]|[\w.-]{1,255}")
_NO_SCHEME = re.compile(r"[\w.-]+:[0-9]+(?:/.*)?|https?(?::/?[^/].*|//.*)", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]{1,12}(?:\.[0-9]{0,6})?")


def refuse_bad_addresses(tools: Sequence[str], environment: Mapping[str, str]) -> None:
    """Check the variables with addresses of ``tools``, names of exporters. Imports no tool.

    Raises:
        UsageError: one has not the form that its tool needs.
    """
    named = [name for name in tools if name not in (AUTO, NONE)]
    known = known_tools() if named else {}
    for name in named:
        for variable, form in known[name].addresses.items():
            value, fault = environment.get(variable, ""), _FORMS.get(form)
            if value and fault is not None and (why := fault(value)):
                raise UsageError(f"{variable}={_shown(value)}: {why} (for --to {name})")


def host_and_port(text: str) -> tuple[str, int] | None:
    """Host, without brackets, and port of ``HOST:PORT``; None if it is none."""
    host, _, port = text.rpartition(":")
    if not _HOST.fullmatch(host) or not _PORT.fullmatch(port) or int(port) > PORT_MAX:
        return None
    return host.strip("[]"), int(port)


def _host_port(text: str) -> str:
    return "" if host_and_port(text) else f"not HOST:PORT with a port from 0 to {PORT_MAX}, such as 127.0.0.1:9477"


def _http_url(text: str) -> str:
    if not re.match(r"https?://", text, re.IGNORECASE):
        return "no address of a server; write http://HOST:PORT or https://HOST:PORT"
    try:
        parts = urlsplit(text)
        good = bool(parts.hostname) and parts.port != 0 and not re.search(r"\s", text)
    except ValueError:
        good = False
    return "" if good else f"it needs a host, and a port from 1 to {PORT_MAX}; write http://HOST:PORT"


def _tracker(text: str) -> str:
    """A server, a database or a folder: what only looks like a server is refused."""
    return _http_url(text) if re.match(r"https?://", text, re.IGNORECASE) or _NO_SCHEME.fullmatch(text) else ""


def _milliseconds(text: str) -> str:
    return "" if _NUMBER.fullmatch(text) and float(text) > 0 else "must be a number of milliseconds above 0"


_FORMS: Mapping[str, Callable[[str], str]] = {
    HOST_PORT: _host_port,
    HTTP_URL: _http_url,
    TRACKER: _tracker,
    MILLISECONDS: _milliseconds,
}
"""For each form: why a text has it not, "" if it has."""


def _shown(value: str) -> str:
    """The value without a login and a query, which may hold secrets."""
    value = re.sub(r"^(.*?//)?.*@", lambda found: f"{found[1] or ''}...@", value).partition("?")[0]
    text = redact_text(value if value.isprintable() else ascii(value))
    return text if len(text) <= VALUE_CHARACTERS_MAX else f"{text[:VALUE_CHARACTERS_MAX]}..."
