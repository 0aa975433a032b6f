"""``steadytrain compare``: where equal runs diverge, and whether groups of runs differ beyond seed noise."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from steadytrain.cli import _options
from steadytrain.cli._next import say_next
from steadytrain.cli._output import say_document, say_lines
from steadytrain.core.errors import UsageError

if TYPE_CHECKING:
    from steadytrain.compare.circumstances import Entry
    from steadytrain.compare.run_groups import Comparison
    from steadytrain.storage.run_folder import Run

DIFFER_STATUS = 1
CANNOT_TELL_STATUS = 125
ENTRIES_SHOWN_MAX = 20
PAGE = "compare.html"
RUNS_MAX = 200
_STATUS = {"equal": 0, "no-difference": 0, "differ": DIFFER_STATUS, "cannot-tell": CANNOT_TELL_STATUS}


@click.command()
@click.argument("runs", nargs=-1, metavar="RUN_A RUN_B [...]")
@click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="NAME=RUN[,RUN...]",
    help="Runs that differ only by their seed: names, folders or patterns. Give two or more groups.",
)
@_options.runs_dir
@click.option(
    "-o",
    "--output",
    "--html",
    "html",
    type=click.Path(path_type=Path),
    callback=_options.writable,
    help="Also write plots and tables to this HTML file.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (steadytrain.compare/1).")
def command(runs: tuple[str, ...], groups: tuple[str, ...], runs_dir: Path, html: Path | None, as_json: bool) -> int:
    """Find where runs first differ, or whether groups differ beyond seed noise.

    Compares each run with the first, bit for bit in everything that both recorded, and lists differences in
    configuration and environment. With --group, compares the final losses of the groups:

    \b
    steadytrain compare baseline repeated
    steadytrain compare --group "old=old-*" --group "new=new-*" -o compared.html

    RUN is a run folder, the name of a run under --runs-dir, or a pattern of either. Needs no PyTorch. Exits with 0 if
    runs are equal (groups: no difference beyond seed noise), 1 if they differ, 125 if the groups are too small to
    decide.
    """
    from steadytrain.compare.run_groups import compare_groups, compare_runs

    if groups and runs:
        raise UsageError(f"{runs[0]}: give runs, or --group options, and not both")
    if groups:
        comparison = compare_groups(_groups(groups, runs_dir))
    else:
        found = _open(runs, runs_dir)
        if len(found) < 2:
            raise UsageError(f"{' '.join(runs) or 'no run'}: give at least two runs; `steadytrain runs` lists them")
        comparison = compare_runs(found)
    if html is not None:
        _write(html, comparison)
    if as_json:
        say_document(comparison.to_json())
    else:
        say_lines("\n".join(_lines(comparison, html)))
        if html is None and _STATUS[comparison.verdict] == DIFFER_STATUS:
            asked = [word for group in groups for word in ("--group", group)] or list(runs)
            say_next("compare", *asked, *_options.elsewhere(runs_dir), "-o", PAGE, why="the curves side by side")
    return _STATUS[comparison.verdict]


def _groups(options: Sequence[str], runs_dir: Path) -> dict[str, list[Run]]:
    groups: dict[str, list[Run]] = {}
    for option in options:
        name, equals, patterns = option.partition("=")
        if not equals or not name or not patterns:
            raise UsageError(f"--group {option}: write NAME=RUN[,RUN...]")
        groups.setdefault(name, []).extend(_open(patterns.split(","), runs_dir))
    if len(groups) < 2:
        raise UsageError(f"--group {options[0]}: one group alone; give at least two")
    owner: dict[Path, str] = {}
    for name, runs in groups.items():
        for run in runs:
            other = owner.setdefault(run.path.resolve(), name)
            if other != name:
                raise UsageError(f"{run.path}: in the groups {other} and {name}; a run belongs to one")
    return groups


def _open(targets: Sequence[str], runs_dir: Path) -> list[Run]:
    from steadytrain.storage.bundle import is_bundle
    from steadytrain.storage.run_folder import RUN_FILE, open_run
    from steadytrain.storage.run_search import find

    paths: list[Path] = []
    for target in filter(None, targets):
        if glob.has_magic(target):
            matched = [Path(name) for place in (target, str(runs_dir / target)) for name in sorted(glob.glob(place))]
            folders = [path for path in matched if (path / RUN_FILE).is_file()]
            if not folders:
                raise UsageError(f"{target}: no run matches, here or under {runs_dir}; `steadytrain runs` lists them")
            paths += folders
        else:
            paths.append(find(target, runs_dir))
    for path in paths:
        if is_bundle(path):
            raise UsageError(f"{path}: an incident; compare takes runs")
    unique = list(dict.fromkeys(path.resolve() for path in paths))
    if len(unique) > RUNS_MAX:
        raise UsageError(f"{len(unique)} runs; at most {RUNS_MAX} are compared at once")
    return [open_run(path) for path in unique]


def _write(html: Path, comparison: Comparison) -> None:
    from steadytrain.core.version import __version__
    from steadytrain.report.comparison_page import page
    from steadytrain.report.page_file import write_page

    if html.is_dir() or not html.parent.is_dir():
        raise UsageError(f"{html}: cannot be written; name a file in a folder that is there")
    write_page(html, page(comparison, version=__version__))


def _lines(comparison: Comparison, html: Path | None) -> list[str]:
    from steadytrain.report.comparison_page import headline, outcomes
    from steadytrain.report.wording import clean

    lines = [*headline(comparison), *(f"  {line}" for line in outcomes(comparison))]
    for pair in comparison.pairs:
        first = pair.agreement.first
        if first is not None and pair.agreement.last_equal_step is not None:
            lines.append(f"  equal up to step {pair.agreement.last_equal_step:,}")
        if first is not None and first.also:
            lines.append(f"  further tensors there: {', '.join(map(clean, first.also[:6]))}")
        lines += [f"  {clean(note)}" for note in pair.agreement.notes]
        lines += _entry_lines(pair.entries)
    lines += _entry_lines(comparison.entries) if comparison.groups else []
    lines += [
        f"  about {noise.runs_needed:,} runs per side would show a difference of this size"
        for noise in comparison.groups
        if noise.verdict == "no-difference" and noise.runs_needed is not None
    ]
    lines += [f"note: {clean(note)}" for note in comparison.notes]
    return [*lines, *([f"written to {html}"] if html is not None else [])]


def _entry_lines(entries: Sequence[Entry]) -> list[str]:
    from steadytrain.report.wording import clean

    if not entries:
        return ["  no recorded entry of configuration or environment differs"]
    shown = [
        f"  {clean(entry.name)}: {_side(entry.left)} / {_side(entry.right)}" for entry in entries[:ENTRIES_SHOWN_MAX]
    ]
    more = len(entries) - len(shown)
    return [*shown, *([f"  and {more} more entries; --json lists all"] if more else [])]


def _side(value: str | None) -> str:
    from steadytrain.report.wording import clean

    return "not there" if value is None else clean(value, length_max=80)
