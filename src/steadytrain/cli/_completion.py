"""What a shell offers after a <Tab>: runs and their incidents, levels, policies, symptoms, trials and fixes.

click does the rest (commands, options, fixed choices, files). Nothing here imports torch or writes, and what is listed
is bounded: a <Tab> answers in a moment, also in a folder of many runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from steadytrain.storage.bundle import MANIFEST
from steadytrain.storage.run_folder import RUN_FILE
from steadytrain.storage.run_search import LAST, RUNS_DIR_DEFAULT
from steadytrain.storage.staged_bundle import INCIDENTS_FOLDER

ENTRIES_MAX = 10_000
"""How many entries of a folder are read."""

FILES = "file"
"""click's word for names that the shell itself completes."""

Complete = Callable[[click.Context, str], Iterable[str]]


def completing(command: click.Command, name: str) -> click.Command:
    """``command``, called ``name``, whose parameters offer what they are about."""
    for parameter in command.params:
        found = _OFFERED.get((name, parameter.name or "")) or _OFFERED.get(("", parameter.name or ""))
        if found is not None:
            parameter.shell_complete = _method(found)  # type: ignore[assignment, method-assign]
    if isinstance(command, click.Group):
        for inner, one in command.commands.items():
            completing(one, inner)
    return command


def _method(complete: Complete) -> Callable[[click.Context, str], list[CompletionItem]]:
    def offered(context: click.Context, incomplete: str) -> list[CompletionItem]:
        names: list[str] = []
        with suppress(OSError, ValueError):  # a folder that cannot be read offers nothing
            names = sorted(name for name in complete(context, incomplete) if name.startswith(incomplete))
        return [*map(CompletionItem, names), *([] if names else [CompletionItem(incomplete, type=FILES)])]

    return offered


def runs(context: click.Context, incomplete: str) -> Iterable[str]:
    """Names of runs; after ``RUN/`` those of its incidents."""
    folder = Path(context.params.get("runs_dir") or RUNS_DIR_DEFAULT)
    asked, slash, _ = incomplete.partition("/")
    names = [name for name in _entries(folder) if (folder / name / RUN_FILE).is_file()]
    if not slash:
        return [*names, LAST] if names else []
    newest = max(names, key=lambda name: (folder / name / RUN_FILE).stat().st_mtime, default="")
    inside = folder / (newest if asked == LAST else asked) / INCIDENTS_FOLDER
    return [f"{asked}/{name}" for name in _entries(inside) if (inside / name / MANIFEST).is_file()]


def levels(context: click.Context, incomplete: str) -> Iterable[str]:
    from steadytrain.core.levels import LEVELS

    return LEVELS


def policies(context: click.Context, incomplete: str) -> Iterable[str]:
    from steadytrain.guard.policy import BASES

    return BASES


def symptoms(context: click.Context, incomplete: str) -> Iterable[str]:
    import steadytrain.detectors
    from steadytrain.core.plugins import module_names

    return [name.replace("_", "-") for name in module_names(steadytrain.detectors)]


def explained(context: click.Context, incomplete: str) -> Iterable[str]:
    """Every name that `explain` takes."""
    from steadytrain.cli._catalogues import catalogues

    return {page.name for kind in catalogues() for page in kind.all()}


def trials(context: click.Context, incomplete: str) -> Iterable[str]:
    from steadytrain.experiments.trial_catalog import TRIAL_PAGES

    return [page.name for page in TRIAL_PAGES.all()]


def fixes(context: click.Context, incomplete: str) -> Iterable[str]:
    """Interventions, and the trials that try them."""
    from steadytrain.diagnosis.cause_catalog import INTERVENTION_PAGES

    return {*(page.name for page in INTERVENTION_PAGES.all()), *trials(context, incomplete)}


def live_fixes(context: click.Context, incomplete: str) -> Iterable[str]:
    """Live interventions, and the trials that one of them makes."""
    from steadytrain.guard.fixes import MADE_BY, SHRINK
    from steadytrain.guard.intervention import NOT_AT_A_START, kinds

    return {*kinds(), *MADE_BY, SHRINK} - {*NOT_AT_A_START}


def _entries(folder: Path) -> list[str]:
    with os.scandir(folder) as found:
        return [entry.name for _, entry in zip(range(ENTRIES_MAX), found, strict=False) if entry.name[0] != "."]


_OFFERED: dict[tuple[str, str], Complete] = {
    ("", "incident"): runs,
    ("", "target"): runs,
    ("", "targets"): runs,
    ("", "runs"): runs,
    ("", "run_name"): runs,
    ("", "keep_with"): runs,
    ("", "reference"): runs,
    ("", "continues"): runs,
    ("", "resume_from"): runs,
    ("query", "words"): runs,
    ("inspect", "path"): runs,
    ("strip", "path"): runs,
    ("", "level"): levels,
    ("run", "policy"): policies,
    ("show", "name"): policies,
    ("explain", "words"): explained,
    ("", "symptom"): symptoms,
    ("trial", "names"): trials,
    ("verify", "intervention"): fixes,
    ("run", "fixes"): live_fixes,
}
"""What is offered by the names of command and parameter; "" is any command."""
