"""``steadytrain.report``: a run or an incident as one HTML page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from steadytrain.api.targets import Target, path_of
from steadytrain.core.errors import UsageError
from steadytrain.core.version import __version__
from steadytrain.report import build, method_shown
from steadytrain.report.html import page
from steadytrain.report.measured import with_measured, with_window
from steadytrain.report.page_file import write_page
from steadytrain.report.zoom import zoom
from steadytrain.storage.bundle import is_bundle, open_bundle
from steadytrain.storage.documents import redact_value
from steadytrain.storage.run_folder import open_run
from steadytrain.storage.run_search import RUNS_DIR_DEFAULT

if TYPE_CHECKING:
    from steadytrain.method.walk import Walk


def report(
    target: Target = None,
    output: str | Path | None = None,
    *,
    runs_dir: str | Path = RUNS_DIR_DEFAULT,
    walk: Walk | None = None,
) -> Path:
    """Write a run or an incident as one HTML file that opens offline. Needs no PyTorch.

    Args:
        target: a run folder, the name of a run under ``runs_dir``, an incident bundle; None: the newest run.
        output: the file to write; by default ``steadytrain-NAME.html`` in the current folder. An existing file is
            replaced.
        runs_dir: folder of run folders.
        walk: the ten steps that ``debug`` returned, shown first.

    Returns:
        The path of the page.

    Raises:
        UsageError: there is no such run or incident, or the file cannot be written.

    Example:
        >>> steadytrain.report("runs/stopped", "stopped.html").name
        'stopped.html'
    """
    path = path_of(target, runs_dir)
    bundle = open_bundle(path) if is_bundle(path) else None
    if bundle is not None:
        name, made = f"{bundle.incident.run}-step-{bundle.incident.step}", None
    else:
        made = open_run(path)
        name = made.name
    file = Path(output or f"steadytrain-{re.sub(r'[^A-Za-z0-9._-]+', '-', name)[:100]}.html")
    check_writable(file)
    if bundle is not None:
        shown = with_window(build.from_bundle(bundle), bundle.window)
    else:
        assert made is not None
        shown = with_measured(build.from_run(made), made)
    steps = method_shown.part(walk.to_json()) if walk is not None else None
    shown = redact_value(shown)
    write_page(file, page(shown, zoom(shown), version=__version__, steps=steps))
    return file


def check_writable(output: Path) -> None:
    """
    Raises:
        UsageError: ``output`` is a folder, or its folder is not there.
    """
    if output.is_dir():
        raise UsageError(f"{output}: this is a folder; name a file with -o FILE.html")
    if not output.parent.is_dir():
        raise UsageError(f"{output.parent}: no such folder to write {output.name} into; make it first")
