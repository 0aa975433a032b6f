"""``steadytrain ui``: the runs of a folder as live pages, served on this machine."""

from __future__ import annotations

import os
import secrets
import shlex
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import click

from steadytrain.cli._output import say, say_with_own_secret
from steadytrain.core.errors import UsageError
from steadytrain.storage.run_search import RUNS_DIR_DEFAULT

if TYPE_CHECKING:
    from steadytrain.report.html import Served

PORT_DEFAULT = 8642
TOKEN_BYTES = 24
NICENESS = 10
"""The server gives way to training: a page that comes later is better than a step that does."""

_DIAGNOSE = (
    "from steadytrain.replay.child_processes import die_with_parent; die_with_parent(); "
    "from steadytrain.cli.main import entry; entry()"
)

EVERY_ADDRESS = ("0.0.0.0", "::", "")


@click.command()
@click.argument("runs_dir", required=False, type=click.Path(path_type=Path), metavar="[RUNS_DIR]")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on. Any other than loopback needs the token that is printed.",
)
@click.option(
    "--port", default=PORT_DEFAULT, show_default=True, type=click.IntRange(0, 65535), help="Port; 0: any that is free."
)
def command(runs_dir: Path | None, host: str, port: int) -> None:
    """Serve the runs of a folder as live pages, until Ctrl-C.

    All runs by health, a run while it trains with curves that zoom, its report, its incidents, two runs compared, and
    the explanations. The page of an incident starts diagnose, on loopback only. The pages load nothing from another
    host. RUNS_DIR is the folder of the runs, by default steadytrain-runs.
    """
    from steadytrain.live.served.diagnosing import Diagnosing
    from steadytrain.live.served.http_server import UiServer, is_loopback
    from steadytrain.live.served.routes import Routes
    from steadytrain.storage.run_folder import RUN_FILE

    root = runs_dir or Path(RUNS_DIR_DEFAULT)
    if not root.is_dir():
        raise UsageError(f"{root}: no such folder of runs; record one with `steadytrain run SCRIPT`")
    if (root / RUN_FILE).is_file():
        raise UsageError(
            f"{root}: this is a run; name the folder it lies in: `steadytrain ui {shlex.quote(str(root.parent))}`"
        )
    token = None if is_loopback(host) else secrets.token_urlsafe(TOKEN_BYTES)
    diagnosing = Diagnosing(diagnose_command)
    routes = Routes(root, Pages(), diagnosing if token is None else None)
    try:
        server = UiServer(host, port, routes.answer, token, routes.act)
    except (OSError, OverflowError) as error:
        raise UsageError(f"{host} port {port}: cannot listen there ({error}); try another --port or --host") from None
    _give_way()
    signal.signal(signal.SIGTERM, _end)
    with server, closing(diagnosing):
        try:
            say_with_own_secret(f"{_address(host, server.server_port, token)}  (Ctrl-C ends)")
            server.serve_forever()
        except KeyboardInterrupt:
            say("ended")


def diagnose_command(source: Path) -> list[str]:
    """The command line of a diagnosis that is killed with this server, on Linux."""
    return [sys.executable, "-c", _DIAGNOSE, "diagnose", str(source.absolute()), "--json"]


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """Ended as by Ctrl-C, so that a diagnosis ends too."""
    raise KeyboardInterrupt


def _give_way() -> None:
    with suppress(OSError, AttributeError):  # not on every platform
        os.nice(NICENESS)


def _address(host: str, port: int, token: str | None) -> str:
    """What a browser opens. An address that stands for all of this machine is shown as its name."""
    name = socket.gethostname() if host in EVERY_ADDRESS else host
    shown = f"[{name}]" if ":" in name else name
    return f"http://{shown}:{port}/{f'?token={token}' if token else ''}"


class Pages:
    """Whole pages, as the commands `report`, `compare` and `explain` make them."""

    def report(self, path: Path, served: Served) -> str:
        from steadytrain.api.pages import page_of

        return page_of(path, served)

    def compare(self, paths: tuple[Path, Path]) -> str:
        from steadytrain.compare.run_groups import compare_runs
        from steadytrain.core.version import __version__
        from steadytrain.report.comparison_page import page
        from steadytrain.storage.run_folder import open_run

        if paths[0].resolve() == paths[1].resolve():
            raise UsageError(f"{paths[0].name}: the same run twice; choose another one for A or B")
        return page(compare_runs([open_run(path) for path in paths]), version=__version__)

    def explanations(self) -> Mapping[str, Mapping[str, str]]:
        from steadytrain.cli._catalogues import catalogues

        return {kind.heading: {page.name: page.summary for page in kind.all()} for kind in catalogues()}

    def explanation(self, name: str) -> str:
        from steadytrain.cli._catalogues import catalogues

        found = [kind.text(page) for kind in catalogues() if (page := kind.find(name)) is not None]
        if not found:
            raise UsageError(f"nothing is called {name[:80]!r}")
        return "\n\n".join(found)
