"""The pages of `preflight`, `check-data` and `audit`, made of their documents."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from steadytrain.report.first_screen import StatusWord, Tone
from steadytrain.report.result_page import Cell, ResultPage, Section, Severity, counted, facts, render
from steadytrain.report.wording import clean, number

EXAMPLES_MAX = 10
DIFFERENCES_MAX = 1000
TONES: Mapping[str, Tone] = {"fail": "bad", "warn": "changed", "pass": "good", "not-run": "unsure"}
WORDS = {"fail": "failed", "warn": "unusual", "pass": "passed", "not-run": "not run"}
ORDER = tuple(TONES)


def preflight_page(document: Mapping[str, Any], command: str = "") -> str:
    """Of a ``steadytrain.preflight/1`` document. ``command`` is the next one."""
    checks = [{**check, "means": check["meaning"]} for check in document["checks"]]
    seen = f"{document['batches']} batches, {document['rows']} rows"
    put_back = (
        StatusWord("state restored, verified by digests", "good")
        if document["restored"]
        else StatusWord("state NOT fully restored", "bad")
    )
    of = facts(
        ("script", document["script"]),
        ("model", f"{document['model']}, {document['parameters']:,} parameters"),
        ("task", document["task"]),
        ("looked at", f"{document['steps']} steps, {seen}" if document["steps"] else seen),
        ("took", f"{document['seconds']:.1f} s ({document['mode']})"),
    )
    name = Path(str(document["script"] or document["model"])).name
    notes = (clean(document["why_no_loss"]),) if document["why_no_loss"] else ()
    shown = _of_checks(
        f"Preflight of {clean(name)}", checks, name_key="name", status=(put_back,), of=of, notes=notes, command=command
    )
    return render(shown, version=document["steadytrain"])


def data_page(document: Mapping[str, Any], *, version: str) -> str:
    """Of a ``steadytrain.data/1`` document."""
    rows = f"{document['rows']:,}" if document["whole"] else f"the first {document['rows']:,}"
    fields = {what: ", ".join(name) if isinstance(name, list) else name for what, name in document["fields"].items()}
    tokenizer = document["tokenizer"]
    of = facts(
        ("source", document["source"]),
        ("kind", document["kind"]),
        ("rows", rows),
        ("tokens", None if document["tokens"] is None else f"{document['tokens']:,}"),
        ("tokenizer", tokenizer["name"] if tokenizer is not None else None),
        *fields.items(),
    )
    name = Path(document["source"]).name or document["source"]
    worst = _worst(document["findings"])
    shown = _of_checks(
        f"Data of {clean(name)}",
        document["findings"],
        name_key="check",
        of=of,
        notes=tuple(map(clean, document["notes"])),
        command=f"steadytrain explain {shlex.quote(worst['check'])}" if worst is not None else "",
    )
    return render(shown, version=version)


def audit_page(document: Mapping[str, Any], command: str = "", *, version: str) -> str:
    """Of a ``steadytrain.audit/1`` document. ``command`` is the next one."""
    many = len(document["differences"])
    alone = document["against"] is None or not document.get("compared", True)
    first = document["differences"][0] if many else None
    name = clean(Path(document["checkpoint"]).name)
    expected = StatusWord("as expected", "good") if not alone else StatusWord("compared with nothing", "unsure")
    headline = f"{name}: nothing is wrong with it" if alone else f"{name} is as expected"
    if document["against"] is not None and alone:
        headline = f"{name}: there was nothing to compare with"
    if first is not None:
        expected = StatusWord(f"{many:,} difference{'s' if many > 1 else ''}", "bad")
        headline = f"{first['part']}: {clean(first['message'])}"
    about = facts(
        ("checkpoint", document["checkpoint"]),
        ("format", document["format"]),
        ("step", document["step"]),
        ("against", document["against"]),
    )
    parts = [part for part in document["parts"] if part["held"] is not None or part["expected"] is not None]
    loads = tuple(
        f"The run loaded {clean(load.get('class'))} ({clean(load.get('what'))}): "
        f"{'; '.join(map(clean, load.get('lost') or ())) or 'nothing lost'}"
        for load in document["loads"]
    )
    shown = ResultPage(
        kind=f"Audit of {name}",
        severity="critical" if many else "silent",
        status=(expected,),
        headline=headline,
        sentences=(*map(clean, document["notes"]), *loads),
        cards=(Section("What was read", facts=about), _parts(parts, alone=alone)),
        sections=(_differences(document["differences"]),) if many else (),
        command=command,
    )
    return render(shown, version=version)


def _parts(parts: Sequence[Mapping[str, Any]], *, alone: bool) -> Section:
    rows: list[tuple[Cell, ...]] = []
    for part in parts:
        held = "not in this format" if part["held"] is None else f"{part['held']:,}"
        if alone:
            rows.append((Cell(part["part"]), Cell(held)))
            continue
        same = part["held"] is not None and part["agree"] == part["expected"]
        agree = "nothing to compare with" if part["expected"] is None else f"{part['agree']:,} of {part['expected']:,}"
        nothing = part["held"] is None or not (part["expected"] or part["held"])
        tone: Tone | None = None if part["expected"] is None or nothing else "good" if same else "bad"
        rows.append((Cell(part["part"]), Cell(held), Cell(agree, tone)))
    head = ("part", "held") if alone else ("part", "held", "as expected")
    return Section("Parts", head=head, rows=tuple(rows))


def _differences(found: Sequence[Mapping[str, Any]]) -> Section:
    rows = tuple(
        (Cell(one["kind"], "bad"), Cell(one["part"]), Cell(clean(one["name"]), mono=True), Cell(clean(one["message"])))
        for one in found[:DIFFERENCES_MAX]
    )
    more = len(found) - DIFFERENCES_MAX
    lines = (f"The first {DIFFERENCES_MAX:,} of {len(found):,}.",) if more > 0 else ()
    return Section("Differences", lines=lines, head=("kind", "part", "name", "what differs"), rows=rows)


def _worst(checks: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    loud = [one for status in ("fail", "warn") for one in checks if one["status"] == status and not one.get("known")]
    return loud[0] if loud else None


def _of_checks(
    kind: str,
    checks: Sequence[Mapping[str, Any]],
    *,
    name_key: str,
    of: tuple[Any, ...],
    notes: tuple[str, ...],
    command: str,
    status: tuple[StatusWord, ...] = (),
) -> ResultPage:
    """The first screen is about the worst check; all of them stand in the table."""
    ordered = sorted(checks, key=lambda one: ORDER.index(one["status"]))
    counts = [(sum(one["status"] == word for one in checks), WORDS[word], TONES[word]) for word in ORDER]
    worst = _worst(checks)
    severity: Severity = "silent" if any(one["status"] == "pass" for one in checks) else "note"
    headline = "No check failed" if severity == "silent" else "Unknown: none of the checks could be run"
    cards = [Section("What was checked", facts=of)]
    if worst is not None:
        severity = "critical" if worst["status"] == "fail" else "warning"
        headline = f"{worst[name_key]}: {clean(worst['message'])}"
        cards.append(Section("Why", lines=(clean(worst["means"]),), facts=_numbers(worst["numbers"])))
        cards.append(Section("Fix", lines=(clean(worst["next"]),)))
    loud = [one for one in ordered if one["status"] in ("fail", "warn")]
    return ResultPage(
        kind=kind,
        severity=severity,
        status=(*counted(counts), *status),
        headline=headline,
        sentences=notes,
        cards=tuple(cards),
        sections=(Section("Checks", head=("result", "check", "what was seen"), rows=_rows(ordered, name_key)),),
        folded=tuple(_details(one, name_key) for one in loud),
        command=command,
    )


def _rows(checks: Sequence[Mapping[str, Any]], name_key: str) -> tuple[tuple[Cell, ...], ...]:
    return tuple(
        (
            Cell("known from the baseline" if one.get("known") else WORDS[one["status"]], TONES[one["status"]]),
            Cell(one[name_key], mono=True),
            Cell(clean(one["message"])),
        )
        for one in checks
    )


def _details(check: Mapping[str, Any], name_key: str) -> Section:
    examples = tuple(
        (
            Cell(f"{one['row']:,}"),
            Cell(clean(one["place"])),
            Cell(clean(one["text"]), mono=True),
            Cell(clean(one["why"])),
        )
        for one in check.get("rows", ())[:EXAMPLES_MAX]
    )
    lines = (clean(check["message"]), clean(check["means"]), clean(check["next"]))
    head = ("row", "place", "text", "why")
    return Section(check[name_key], tuple(filter(None, lines)), _numbers(check["numbers"]), head, examples)


def _numbers(numbers: Mapping[str, Any]) -> tuple[Any, ...]:
    pairs = []
    for name, value in numbers.items():
        plain = isinstance(value, (int, float)) and not isinstance(value, bool)
        text = number(value) if plain else value if isinstance(value, str) else json.dumps(value)
        pairs.append((name.replace("_", " "), text))
    return facts(*pairs)
