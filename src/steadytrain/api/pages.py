"""``steadytrain.report``: a run or an incident as one HTML page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from steadytrain.api.targets import Target, path_of
from steadytrain.core.errors import UsageError
from steadytrain.core.version import __version__
from steadytrain.report import build, method_shown
from steadytrain.report.formats import FORMATS
from steadytrain.report.html import Served, page
from steadytrain.report.measured import with_measured, with_window
from steadytrain.report.notebook_card import page_card
from steadytrain.report.page_file import write_page
from steadytrain.report.report_values import Report
from steadytrain.report.zoom import zoom
from steadytrain.storage.bundle import is_bundle, open_bundle
from steadytrain.storage.documents import redact_value
from steadytrain.storage.run_folder import open_run
from steadytrain.storage.run_search import RUNS_DIR_DEFAULT

if TYPE_CHECKING:
    from steadytrain.method.walk import Walk

    _PathHere = Path
else:
    _PathHere = type(Path())  # before Python 3.12 only the path of a platform can be derived from


class Page(_PathHere):
    """The path of a page that was written. A notebook shows the page's first screen, and a link to the whole."""

    _card = ""

    @classmethod
    def at(cls, path: Path, shown: Report) -> Page:
        page = cls(path)
        page._card = page_card(shown, str(path))
        return page

    def _repr_html_(self) -> str | None:
        return self._card or None


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
        The path of the page. A notebook shows it as the page's first screen.

    Raises:
        UsageError: there is no such run or incident, or the file cannot be written.

    Examples:
        >>> steadytrain.report("runs/stopped", "stopped.html").name
        'stopped.html'
    """
    path = path_of(target, runs_dir)
    if is_bundle(path):
        incident = open_bundle(path).incident
        name = f"{incident.run}-step-{incident.step}"
    else:
        name = open_run(path).name
    file = Path(output or f"steadytrain-{re.sub(r'[^A-Za-z0-9._-]+', '-', name)[:100]}.html")
    check_writable(file)
    shown = _shown(path)
    write_page(file, _text(shown, walk))
    return Page.at(file, shown)


def page_of(path: Path, served: Served | None = None) -> str:
    """The page of the run or incident in a folder, with what a server adds to it.

    Raises:
        UsageError: the folder is neither, or is damaged.
    """
    return _text(_shown(path), served=served)


def formatted(path: Path, form: str) -> str:
    """The run or incident in a folder as ``md``, ``json`` or ``junit``.

    Raises:
        UsageError: the folder is neither, or is damaged.
    """
    return FORMATS[form](_shown(path))


def _shown(path: Path) -> Report:
    if is_bundle(path):
        bundle = open_bundle(path)
        return redact_value(with_window(build.from_bundle(bundle), bundle.window))
    run = open_run(path)
    return redact_value(with_measured(build.from_run(run), run))


def _text(shown: Report, walk: Walk | None = None, served: Served | None = None) -> str:
    steps = method_shown.part(walk.to_json()) if walk is not None else None
    return page(shown, zoom(shown), version=__version__, steps=steps, served=served)


def check_writable(output: Path) -> None:
    """
    Raises:
        UsageError: ``output`` is a folder, or its folder is not there.
    """
    if output.is_dir():
        raise UsageError(f"{output}: this is a folder; name a file with -o FILE.html")
    if not output.parent.is_dir():
        raise UsageError(f"{output.parent}: no such folder to write {output.name} into; make it first")
