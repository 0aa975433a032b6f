"""What commands found about an incident or run, one line each, kept beside it: ``commands.json`` in its trials folder.

The checklist and ``debug`` read them as evidence of what was already done. A folder that cannot be written keeps
nothing, and no command fails for that. Not here: outcomes of trials (``outcome_files``) and the diagnosis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from steadytrain.core.bounded_files import read_json
from steadytrain.core.json_values import JsonValue
from steadytrain.experiments.outcome_files import result_file, write_result
from steadytrain.experiments.specs import Verdict

SCHEMA = "steadytrain.commands/1"
FILE = "commands.json"
RESULTS_MAX = 500
WHAT_MAX = 500
ROWS_WRITTEN = "rows"
"""The effect of a `repro` that wrote the rows of a damaged batch: there is no operation to make a script of."""

BYTES_MAX = 4 << 20


@dataclass(frozen=True)
class CommandResult(JsonValue):
    """One command and what it found.

    ``command`` is its name with what it tried (``replay``, ``trial clip``, ``verify clip``), ``done`` whether it came
    to a result, ``what`` the result as one line, ``when`` a time in ISO 8601, UTC. ``effect`` is that of a trial
    (``experiments.specs.EFFECTS``); of a replay `again`, `gone` (the symptom), `exact` (there is none) or `differs`; of
    `check-data` the status of its report; of `repro` `rows` if it wrote rows of the batch in place of a script.
    """

    command: str
    done: bool
    what: str
    effect: str = ""
    when: str = ""


def keep_result(source: Path, *results: CommandResult) -> None:
    """Keep results for the bundle or run ``source``. One of the same command is replaced."""
    when = datetime.now(timezone.utc).isoformat(timespec="seconds")
    kept = dict(results_of(source))
    for result in results:
        kept.pop(result.command, None)
        kept[result.command] = replace(result, what=result.what[:WHAT_MAX], when=result.when or when)
    rows = [one.to_json() for one in list(kept.values())[-RESULTS_MAX:]]
    try:
        write_result(source, FILE, {"schema": SCHEMA, "commands": rows})
    except OSError:
        return


def keep_verdicts(source: Path, command: str, verdicts: Mapping[str, Verdict]) -> None:
    """Keep the verdicts of trials that ``command`` (``trial`` or ``verify``) ran."""
    keep_result(
        source,
        *(
            CommandResult(f"{command} {name}", verdict.effect != "not-run", verdict.why, verdict.effect)
            for name, verdict in verdicts.items()
        ),
    )


def results_of(source: Path) -> dict[str, CommandResult]:
    """The kept results by command, the oldest first; empty if there are none or the file is damaged."""
    path = result_file(source, FILE)
    try:
        data = read_json(path, bytes_max=BYTES_MAX)
        if data["schema"] != SCHEMA:
            return {}
        found = [CommandResult.from_json(row) for row in data["commands"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    return {one.command: one for one in found}
