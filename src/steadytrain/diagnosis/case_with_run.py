"""The case that a diagnosis begins with: that of a bundle or run, with what the run around it recorded.

Apart from ``answer_files``: whoever reads an answer needs no case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from steadytrain.core.errors import UsageError
from steadytrain.core.model import FIRST_STREAM
from steadytrain.diagnosis.opening import with_symptoms
from steadytrain.experiments.case import Case
from steadytrain.experiments.case_files import open_case
from steadytrain.experiments.specs import Json
from steadytrain.storage.bundle import is_bundle
from steadytrain.storage.run_folder import Run, open_run
from steadytrain.storage.run_search import run_around

SCRIPT = "script"


def open_story(
    path: Path, *, facts: Mapping[str, Json] | None = None, onset: int | None = None, symptom: str | None = None
) -> Case:
    """The case of a bundle or run, with the other symptoms that the run recorded up to then, unless ``onset`` or
    ``symptom`` is given. Its window has what the looks at the script found.

    Raises:
        UsageError: see ``experiments.case_files.open_case``.
    """
    case = open_case(path, facts=facts, onset=onset, symptom=symptom)
    found = run_around(path) if is_bundle(path) else open_run(path)
    case = case if found is None else _with_optimizer(_with_looks(case, found), found)
    run = found if onset is None and symptom is None and is_bundle(path) else None
    if run is None:
        return case
    own = {(one.name, one.first_step) for one in case.symptoms}
    more = [one for one in run.symptoms if one.first_step <= case.step and (one.name, one.first_step) not in own]
    return with_symptoms(case, more)


def _with_looks(case: Case, run: Run) -> Case:
    """The case with the table ``script`` of its stream in its window, if the run has one that can be read."""
    stream = case.symptom.stream if case.symptom is not None else FIRST_STREAM
    if SCRIPT in case.window.tables or SCRIPT not in run.tables(stream):
        return case
    try:
        tables = {**case.window.tables, SCRIPT: run.table(SCRIPT, stream)}
    except (UsageError, OSError):
        return case
    return replace(case, window=replace(case.window, tables=tables))


def _with_optimizer(case: Case, run: Run) -> Case:
    """The case with the class of the run's optimizer, for the code of fixes, where no survey has told it."""
    recorded = run.facts.get("optimizer")
    first = recorded[0] if isinstance(recorded, list) and recorded else recorded
    name = first.get("class") if isinstance(first, Mapping) else None
    if "optimizer" in case.facts or not isinstance(name, str):
        return case
    return replace(case, facts={**case.facts, "optimizer": name.rpartition(".")[2]})
