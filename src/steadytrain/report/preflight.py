"""The result of a preflight as a table, as JUnit XML and as SARIF. Pure functions of its document."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from steadytrain.storage.documents import as_json

STATUS_WORDS = {"pass": "pass", "warn": "warn", "fail": "FAIL", "not-run": "not run"}
LOUD = ("fail", "warn")
WIDTH_MIN, WIDTH_MAX = 72, 118
SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_FRACTION = re.compile(r"[-+]?\d+\.\d+(?:e[-+]?\d+)?%?|[-+]?\d+e[-+]?\d+", re.IGNORECASE)


def as_text(document: Mapping[str, Any]) -> str:
    """The table: failed checks with their reasons first, then one line for each other check."""
    width = max(WIDTH_MIN, min(WIDTH_MAX, shutil.get_terminal_size((100, 24)).columns))
    entries = document["checks"]
    names = max([len(entry["name"]) for entry in entries], default=10)
    lines = [*_head(document), ""]
    for wanted in ("fail", "warn", "pass", "not-run"):
        for entry in entries:
            if entry["status"] == wanted:
                lines += _entry(entry, names, width)
    return "\n".join([*lines, "", _tail(document)]) + "\n"


def as_junit(document: Mapping[str, Any]) -> str:
    """One test case per check. Checks that did not run are skipped."""
    counts = document["counts"]
    suite = ElementTree.Element(
        "testsuite",
        name="steadytrain preflight",
        tests=str(len(document["checks"])),
        failures=str(sum(_fails(entry) for entry in document["checks"])),
        skipped=str(counts["not-run"]),
        time=str(document["seconds"]),
    )
    for entry in document["checks"]:
        case = ElementTree.SubElement(
            suite, "testcase", classname="preflight", name=entry["name"], time=str(entry["seconds"])
        )
        if _fails(entry):
            failure = ElementTree.SubElement(case, "failure", message=_clean(entry["message"]))
            failure.text = _clean(f"{entry['meaning']}\n{entry['next']}\n{as_json(entry['numbers'])}")
        elif entry["status"] == "not-run":
            ElementTree.SubElement(case, "skipped", message=_clean(entry["message"]))
        else:
            ElementTree.SubElement(case, "system-out").text = _clean(f"{entry['status']}: {entry['message']}")
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def as_sarif(document: Mapping[str, Any]) -> str:
    """SARIF 2.1.0: a failed check is an error and an unusual one a warning, at the script's first line."""
    loud = [entry for entry in document["checks"] if entry["status"] in LOUD]
    rules = [
        {
            "id": entry["name"],
            "shortDescription": {"text": entry["name"]},
            "help": {"text": f"steadytrain explain {entry['name']}"},
        }
        for entry in document["checks"]
    ]
    results = []
    for entry in loud:
        script = document.get("script")
        place = {
            "physicalLocation": {
                "artifactLocation": {"uri": Path(script).as_posix() if script else "preflight"},
                "region": {"startLine": 1},
            }
        }
        results.append(
            {
                "ruleId": entry["name"],
                "level": "error" if entry["status"] == "fail" else "warning",
                "message": {"text": f"{entry['message']}. {entry['meaning']} {entry['next']}".strip()},
                "locations": [place],
                "partialFingerprints": {"steadytrain/v1": finding_key(entry)},
                **({"baselineState": "unchanged"} if entry.get("known") else {}),
            }
        )
    driver = {"name": "steadytrain", "version": document["steadytrain"], "rules": rules}
    log = {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}
    return as_json(log, indent=1, ensure_ascii=False) + "\n"


def with_baseline(document: Mapping[str, Any], baseline: Mapping[str, Any]) -> dict[str, Any]:
    """Set ``known`` on each finding that the baseline contains, ignoring fractions."""
    known = {finding_key(entry) for entry in baseline["checks"] if entry["status"] in LOUD}
    checks = [
        {**entry, "known": True} if entry["status"] in LOUD and finding_key(entry) in known else dict(entry)
        for entry in document["checks"]
    ]
    return {**document, "checks": checks}


def finding_key(entry: Mapping[str, Any]) -> str:
    """The identity of a finding: its check, status and message. Counts and names matter, measured fractions do not."""
    return f"{entry['name']}|{entry['status']}|{_FRACTION.sub('#', entry['message'])}"


def fails(document: Mapping[str, Any]) -> bool:
    """Whether a check failed that the baseline does not contain."""
    return any(_fails(entry) for entry in document["checks"])


def _fails(entry: Mapping[str, Any]) -> bool:
    return entry["status"] == "fail" and not entry.get("known")


def _head(document: Mapping[str, Any]) -> list[str]:
    of = document["script"] or document["model"]
    size = f"{document['parameters']:,} parameters"
    seen = f"{document['batches']} batches, {document['rows']} rows"
    if document["steps"]:
        seen = f"{document['steps']} steps, {seen}"
    lines = [f"preflight of {of} ({document['mode']}): {document['model']}, {size}; {document['task']}; {seen}"]
    if document["why_no_loss"]:
        lines.append(f"  {document['why_no_loss']}")
    return lines


def _entry(entry: Mapping[str, Any], names: int, width: int) -> list[str]:
    word = "known" if entry.get("known") else STATUS_WORDS[entry["status"]]
    lead = f"  {word:<8} {entry['name']:<{names}}  "
    lines = textwrap.wrap(entry["message"], width - len(lead)) or [""]
    found = [lead + lines[0], *(" " * len(lead) + line for line in lines[1:])]
    if entry["status"] in LOUD and not entry.get("known"):
        for title, text in (("means", entry["meaning"]), ("next", entry["next"])):
            if text:
                start = " " * 11 + f"{title:<6}"
                found += textwrap.wrap(text, width, initial_indent=start, subsequent_indent=" " * len(start))
    return found


def _tail(document: Mapping[str, Any]) -> str:
    counts = document["counts"]
    parts = [f"{counts[status]} {STATUS_WORDS[status].lower()}" for status in ("fail", "warn", "pass", "not-run")]
    known = sum(bool(entry.get("known")) for entry in document["checks"])
    if known:
        parts.append(f"{known} known from the baseline")
    put_back = "state restored, verified by digests" if document["restored"] else "state NOT fully restored"
    return f"{', '.join(parts)}; {document['seconds']:.1f} s; {put_back}"


def _clean(text: str) -> str:
    """Remove characters that XML forbids."""
    return "".join(char for char in text if char in "\t\n" or ord(char) >= 32)
