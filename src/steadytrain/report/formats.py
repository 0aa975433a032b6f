"""A report for other programs and for chats: as JSON, as Markdown, as JUnit XML. Each shows what the first screen does.

Curves and layers are in the HTML page alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any
from xml.etree import ElementTree

from steadytrain.report.report_values import Report
from steadytrain.storage.documents import as_json, redact_value

SCHEMA = "steadytrain.report/1"
_CONTROLS = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML forbids."""

_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~])")


def document(report: Report) -> dict[str, Any]:
    """The ``steadytrain.report/1`` document."""
    report, first = redact_value(report), redact_value(report.first)
    return {
        "schema": SCHEMA,
        "title": report.title,
        "severity": report.severity,
        "headline": first.headline if first is not None else report.verdict,
        "certainty": (first.certainty if first is not None else "") or None,
        "status": [word.text for word in first.status] if first is not None else [],
        "summary": list(report.summary),
        "where": asdict(first.where) if first is not None and first.where is not None else None,
        "why": asdict(first.why) if first is not None and first.why is not None else None,
        "fix": asdict(first.fix) if first is not None and first.fix is not None else None,
        "evidence": [asdict(line) for line in first.evidence] if first is not None else [],
        "symptoms": [asdict(symptom) for symptom in report.symptoms],
        "incidents": [{"step": one.step, "title": one.title, "path": one.path} for one in report.incidents],
        "facts": {fact.label: fact.value for fact in report.facts},
        "notes": list(report.notes),
        "next": report.commands[0].line if report.commands else None,
    }


def as_json_text(report: Report) -> str:
    return as_json(document(report), indent=1, ensure_ascii=False) + "\n"


def as_markdown(report: Report) -> str:
    """For an issue or a chat. Text of a run is escaped, so it formats nothing."""
    known = document(report)
    certainty = f"**{known['certainty']}:** " if known["certainty"] else ""
    lines = [f"## {_plain(known['title'])}", "", f"{certainty}{_plain(known['headline'])}", ""]
    lines += [f"*{_plain(', '.join(known['status']))}*", ""] if known["status"] else []
    lines += [f"- {_plain(sentence)}" for sentence in known["summary"]]
    lines += [*_where(known["where"]), *_why(known["why"]), *_fix(known["fix"])]
    trials = [
        [one[name] or "none" for name in ("trial", "effect", "control", "placebo", "why")] for one in known["evidence"]
    ]
    lines += _table("Evidence", ("trial", "the symptom", "control", "placebo", "what was seen"), trials)
    seen = [[one[name] for name in ("severity", "name", "steps", "message")] for one in known["symptoms"]]
    lines += _table("Symptoms", ("severity", "symptom", "where", "what was seen"), seen)
    lines += ["", "Next:", "", *_code([known["next"]])] if known["next"] else []
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


def as_junit(report: Report) -> str:
    """One test case for each symptom above a note, which fails if it is critical, and one for the run as a whole."""
    known = document(report)
    loud = [one for one in known["symptoms"] if one["severity"] != "note"]
    bad = [one for one in loud if one["severity"] == "critical"]
    grave = known["severity"] == "critical"
    suite = ElementTree.Element(
        "testsuite", name="steadytrain report", tests=str(len(loud) + 1), failures=str(len(bad) + grave)
    )
    whole = ElementTree.SubElement(suite, "testcase", classname="report", name=_xml(known["title"]))
    if grave:
        _fail(whole, known["headline"], [*known["summary"], f"next: {known['next']}"])
    for one in loud:
        name = f"{one['name']} ({one['steps']})"
        case = ElementTree.SubElement(suite, "testcase", classname="symptom", name=_xml(name))
        if one["severity"] == "critical":
            _fail(case, one["message"], [])
        else:
            ElementTree.SubElement(case, "system-out").text = _xml(f"{one['severity']}: {one['message']}")
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


FORMATS = {"md": as_markdown, "json": as_json_text, "junit": as_junit}
"""Besides the HTML page."""


def _where(where: dict[str, Any] | None) -> list[str]:
    if where is None:
        return []
    source = [f"{'>' if line['marked'] else ' '} {line['number'] or ''} {line['text']}" for line in where["source"]]
    facts = [f"- {_plain(fact['label'])}: {_plain(fact['value'])}" for fact in where["facts"]]
    return ["", "### Where", "", _plain(where["line"]), "", *(_code(source) if source else []), "", *facts]


def _why(why: dict[str, Any] | None) -> list[str]:
    if why is None:
        return []
    return ["", "### Why", "", *(f"- {_plain(line)}" for line in (*why["lines"], *why["rows"]))]


def _fix(fix: dict[str, Any] | None) -> list[str]:
    if fix is None:
        return []
    diff = _code(fix["diff"], "diff") if fix["diff"] else []
    return ["", "### Fix", "", _plain(fix["what"]), "", *diff, "", _plain(fix["effect"])]


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    if not rows:
        return []
    lines = [f"| {' | '.join(_plain(cell) for cell in row)} |" for row in rows]
    return ["", f"### {title}", "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *lines]


def _code(lines: Sequence[str], kind: str = "") -> list[str]:
    """A block with a fence that is longer than any within it."""
    longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{kind}", *lines, fence]


def _plain(text: str) -> str:
    return _MARKUP.sub(r"\\\1", text)


def _fail(case: ElementTree.Element, message: str, lines: Sequence[str]) -> None:
    failure = ElementTree.SubElement(case, "failure", message=_xml(message))
    failure.text = _xml("\n".join(lines))


def _xml(text: str) -> str:
    return _CONTROLS.sub("", text)
