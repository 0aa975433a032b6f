"""``steadytrain notify``: a test message to the addresses and the command that alerts of a run go to."""

from __future__ import annotations

import os

import click

from steadytrain.cli import _options
from steadytrain.cli._output import say
from steadytrain.core.errors import UsageError


@click.command()
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option(
    "--on-incident",
    default="",
    callback=_options.not_blank,
    metavar="COMMAND",
    help="Also call this shell command, with the message as JSON.",
)
def command(urls: tuple[str, ...], on_incident: str) -> None:
    """Send a test message to the addresses of `run --notify`.

    URL is an address of a chat, a mail server or a web hook (docs/alerts.md), by default those of STEADYTRAIN_NOTIFY.
    All addresses are checked before anything is sent. Exits with 2 if one cannot be used or the message did not arrive;
    a run goes on in that case.
    """
    from steadytrain.exporters.alerts.one_message import send_test
    from steadytrain.exporters.alerts.settings import NOTIFY_VARIABLE, check_command, check_urls, urls_of_environment

    checked = check_urls(urls or urls_of_environment())
    call = check_command(on_incident)
    if not checked and not call:
        raise UsageError(f"notify: no address; name one, such as json://HOST:PORT/PATH, or set {NOTIFY_VARIABLE}")
    try:
        answers = send_test(checked, call, dict(os.environ))
    except ValueError as error:
        raise UsageError(f"--notify {error}") from None
    for name, why in answers:
        if not why:
            say(f"sent to {name}")
    failed = [f"{name}: {why}" for name, why in answers if why]
    if failed:
        raise UsageError(f"the message did not arrive at {'; '.join(failed)}")
