"""``steadytrain report``: a run or an incident as one HTML page."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

import click

from steadytrain.core.errors import UsageError

RUNS_DIR_DEFAULT = "steadytrain-runs"


@click.command()
@click.argument("target", required=False, metavar="[RUN|INCIDENT]")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="File to write.  [default: steadytrain-NAME.html in the current folder]",
)
@click.option(
    "--runs-dir",
    type=click.Path(path_type=Path),
    default=RUNS_DIR_DEFAULT,
    show_default=True,
    help="Folder that holds the runs.",
)
def command(target: str | None, output: Path | None, runs_dir: Path) -> None:
    """Write a run or an incident as one HTML file that opens offline: the newest run when none is named.

    RUN is a run folder or the name of a run under --runs-dir, INCIDENT the folder of an incident bundle.
    """
    from steadytrain.storage.bundle import is_bundle, open_bundle
    from steadytrain.storage.run_folder import open_run
    from steadytrain.storage.run_search import find

    path = find(target, runs_dir)
    bundle = open_bundle(path) if is_bundle(path) else None
    run = open_run(path) if bundle is None else None
    if bundle is not None:
        name = f"{bundle.incident.run}-step-{bundle.incident.step}"
    else:
        assert run is not None
        name = run.name
    output = output or Path(f"steadytrain-{re.sub(r'[^A-Za-z0-9._-]+', '-', name)[:100]}.html")
    _check_writable(output)

    from steadytrain.core.version import __version__
    from steadytrain.report import build
    from steadytrain.report.html import page
    from steadytrain.report.measured import with_measured, with_window
    from steadytrain.report.zoom import zoom

    if bundle is not None:
        report = with_window(build.from_bundle(bundle), bundle.window)
    else:
        assert run is not None
        report = with_measured(build.from_run(run), run)
    text = page(report, zoom(report), version=__version__)
    size = write_page(output, text)
    click.echo(f"{output}  {size / 1024:,.0f} KiB")


def _check_writable(output: Path) -> None:
    if output.is_dir():
        raise UsageError(f"{output}: this is a folder; name a file with -o FILE.html")
    if not output.parent.is_dir():
        raise UsageError(f"{output.parent}: no such folder to write {output.name} into; make it first")


def write_page(output: Path, text: str) -> int:
    """Write ``text`` so that a reader sees the old page or the new one; its size in bytes."""
    data = text.encode("utf-8")
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(dir=output.parent, prefix=f".{output.name[:100]}.")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, output)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise UsageError(f"{output}: cannot be written ({error.strerror})") from None
    return len(data)
