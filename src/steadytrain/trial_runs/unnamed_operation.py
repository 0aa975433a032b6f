"""Names the first bad operation of an incident that has none yet, before its cause is looked for.

At the incident a search may find nothing: several optimizers took turns, or the loss code could not be run again. A
replay in a new process often names it, and causes and patches rest on its name and line. So the answer does not depend
on whether somebody called ``steadytrain locate`` before. Torch-free.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from steadytrain.core.errors import UsageError
from steadytrain.core.incident import Finding
from steadytrain.locate.locate_failure import find_again, keep, target
from steadytrain.replay.failing_step import is_named_input
from steadytrain.replay.moved_files import NOT_MOVED
from steadytrain.storage.bundle import is_bundle, open_bundle
from steadytrain.storage.step_look import read_look

WAIT_S_MAX, SHARE = 90.0, 0.25
"""Longest time of the search in seconds, and its share of the budget."""


def name_operation(source: Path, moved: str, *, budget_s: float, slower: float, tell: Callable[[str], None]) -> None:
    """Search the failing step of a bundle in a new process, and keep in the bundle what is found.

    Nothing is done for a run, an incident of finite numbers, a rank of several, moved files, or a step that was
    searched in a new process before. A search that fails is reported and changes nothing.

    Args:
        budget_s: the time of the diagnosis, in seconds of work.
        slower: how many seconds a second of work takes on this machine now.
    """
    if moved != NOT_MOVED or not _is_unnamed(source):
        return
    tell("searching the first bad operation, which the run did not name")
    try:
        asked = target(source, None)
        keep(asked, find_again(asked, wait_s=min(WAIT_S_MAX, SHARE * budget_s) * slower))
    except (UsageError, OSError) as error:
        tell(f"the first bad operation could not be searched: {error}")


def _is_unnamed(source: Path) -> bool:
    if not is_bundle(source):
        return False
    bundle = open_bundle(source)
    finding: Finding = bundle.incident.finding
    alone = int(bundle.environment.get("world_size") or 1) < 2
    named = finding.located is not None or is_named_input(finding)
    return bundle.incident.kind == "nonfinite" and alone and not named and read_look(source) is None
