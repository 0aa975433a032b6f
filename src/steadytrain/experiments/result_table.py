"""The table of trials of an incident and their verdicts, as a document and as lines. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from steadytrain.core.json_values import number_to_json
from steadytrain.experiments.case import Case
from steadytrain.experiments.judging import shows
from steadytrain.experiments.specs import UNCHANGED, Outcome, Verdict
from steadytrain.experiments.trial_catalog import trial

SCHEMA = "steadytrain.trials/1"
HEADER = ("trial", "effect", "peak excess", "final excess", "first bad step", "seconds")


def document(
    incident: str, case: Case, verdicts: Mapping[str, Verdict], outcomes: Mapping[str, Sequence[Outcome]]
) -> dict[str, Any]:
    """The ``steadytrain.trials/1`` document; controls first."""
    controls = [one for name, those in outcomes.items() if trial(name).control for one in those if one.ran]
    unchanged = next((one for one in controls if one.spec.trial == UNCHANGED), None)
    shown, what = shows(case, unchanged, controls) if unchanged is not None else (False, "it was not run")
    return {
        "schema": SCHEMA,
        "incident": incident,
        "symptom": case.symptom.name if case.symptom is not None else None,
        "aim": case.aim,
        "onset": case.onset,
        "begin": case.begin,
        "probe_steps": case.probe_steps(),
        "control": {"shown": shown, "exact": unchanged.exact if unchanged is not None else None, "why": what},
        "trials": [_row(name, verdict, outcomes.get(name, ())) for name, verdict in _ordered(verdicts)],
    }


def lines(result: Mapping[str, Any]) -> list[str]:
    """The document as lines of text."""
    symptom = result["symptom"] or "no symptom"
    begin = "the script's own beginning" if result["begin"] is None else f"the snapshot after step {result['begin']}"
    exact = {True: ", bit-identical", False: ", not exact", None: ""}[result["control"]["exact"]]
    told = [
        f"{symptom} at step {result['onset']}, trials from {begin}",
        f"  unchanged replay: {'shows it' if result['control']['shown'] else 'does not show it'}"
        f" ({result['control']['why']}){exact}",
        "",
    ]
    rows = [HEADER, *(_cells(row) for row in result["trials"])]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    for row in rows:
        cells = [
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        told.append("  " + "  ".join(cells).rstrip())
    reasons = [row for row in result["trials"] if row["effect"] in ("not-run", "inconclusive")]
    told += [*([""] if reasons else []), *(f"  {row['trial']}: {row['why']}" for row in reasons)]
    notes = dict.fromkeys(note for row in result["trials"] for run in row["runs"] for note in run["notes"])
    return told + [f"  note: {note}" for note in notes]


def _ordered(verdicts: Mapping[str, Verdict]) -> list[tuple[str, Verdict]]:
    return sorted(verdicts.items(), key=lambda item: (not trial(item[0]).control, item[0] != UNCHANGED))


def _row(name: str, verdict: Verdict, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {
        **verdict.to_json(),
        "control": trial(name).control,
        "changes": [change.to_json() for change in outcomes[0].spec.changes] if outcomes else [],
        "runs": [
            {
                "ran": one.ran,
                "why_not": one.why_not,
                "exact": one.exact,
                "ended": one.ended,
                "losses": [None if seen.loss is None else number_to_json(seen.loss) for seen in one.steps],
                "probes": [probe.to_json() for probe in one.probes],
                "seconds": one.seconds,
                "notes": list(one.notes),
            }
            for one in outcomes
        ],
    }


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    numbers = row["numbers"]

    def number(name: str, form: str) -> str:
        return format(float(numbers[name]), form) if name in numbers else ""

    return (
        row["trial"] + (" (control)" if row["control"] else ""),
        row["effect"],
        number("peak_excess", "+.3g"),
        number("final_excess", "+.3g"),
        number("first_bad_step", ".0f"),
        number("seconds", ".1f"),
    )
