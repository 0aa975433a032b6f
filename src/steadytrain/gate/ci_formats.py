"""The result of a gate as JUnit XML, SARIF, Markdown and GitHub annotations. Pure functions of the result.

Names and messages come from logs and scripts of others. Each format gets them so that they are text and nothing else.
"""

from __future__ import annotations

import html
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote
from xml.etree import ElementTree

from steadytrain.core.model import ScriptLine
from steadytrain.core.version import __version__
from steadytrain.gate.result import Check, GatedRun, GateResult
from steadytrain.report.wording import clean
from steadytrain.storage.documents import as_json
from steadytrain.storage.run_folder import RUN_FILE

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
ANNOTATIONS_MAX = 10
"""GitHub shows ten errors of a step."""

_NOT_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+!|~-])")


def as_junit(result: GateResult) -> str:
    """One suite per run and one case per check; an unknown check is an error."""
    root = ElementTree.Element("testsuites", name="steadytrain gate")
    for run in result.runs:
        suite = _suite(root, _xml(run.run), run.checks)
        for check in run.checks:
            case = ElementTree.SubElement(suite, "testcase", classname=_xml(run.run), name=check.name)
            if check.status == "pass":
                ElementTree.SubElement(case, "system-out").text = _xml(check.reason)
            else:
                kind = "failure" if check.status == "fail" else "error"
                ElementTree.SubElement(case, kind, message=_xml(check.reason)).text = _xml(f"{run.path}")
    if result.unreadable:
        lines = tuple(Check("readable", "unknown", line) for line in result.unreadable)
        suite = _suite(root, "not read", lines)
        for line in lines:
            case = ElementTree.SubElement(suite, "testcase", classname="not read", name=line.name)
            ElementTree.SubElement(case, "error", message=_xml(line.reason))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(root: ElementTree.Element, name: str, checks: tuple[Check, ...]) -> ElementTree.Element:
    statuses = [check.status for check in checks]
    return ElementTree.SubElement(
        root,
        "testsuite",
        name=name,
        tests=str(len(statuses)),
        failures=str(statuses.count("fail")),
        errors=str(statuses.count("unknown")),
    )


def as_sarif(result: GateResult) -> str:
    """SARIF 2.1.0: an error for each check that did not pass, at the line of the script at fault, else at the run."""
    names = list(dict.fromkeys(check.name for run in result.runs for check in run.checks))
    rules = [{"id": name, "shortDescription": {"text": name}} for name in names]
    results = [
        {
            "ruleId": check.name,
            "level": "error",
            "message": {"text": f"{clean(run.run)}: {check.reason}"},
            "locations": [_location(run, check)],
            "partialFingerprints": {"steadytrain/v1": f"{check.name}|{run.run}"},
        }
        for run, check in _faults(result)
    ]
    driver = {"name": "steadytrain gate", "version": __version__, "rules": rules}
    log = {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}
    return as_json(log, indent=1, ensure_ascii=False) + "\n"


def _location(run: GatedRun, check: Check) -> dict[str, object]:
    """The line of the script at fault if it lies in the current folder, else the run."""
    in_script = check.at is not None and _inside(Path(os.path.abspath(check.at.file))) is not None
    path, line = (check.at.file, check.at.line) if in_script and check.at is not None else (run.path, 1)
    return {"physicalLocation": {"artifactLocation": {"uri": _uri(path)}, "region": {"startLine": line}}}


def as_markdown(result: GateResult) -> str:
    """A heading and a table of the checks for each run."""
    lines = [f"## steadytrain gate: {'passed' if result.passed else 'failed'}", ""]
    for run in result.runs:
        lines += [f"### {_markdown(run.run)}: {'passed' if run.passed else 'failed'}", ""]
        lines += ["| check | result | reason |", "|---|---|---|"]
        lines += [f"| {check.name} | {check.status} | {_markdown(check.reason)} |" for check in run.checks]
        lines.append("")
    lines += [f"Not read: {_markdown(line)}\n" for line in result.unreadable]
    return "\n".join(lines)


def github_annotations(result: GateResult) -> list[str]:
    """Workflow commands of GitHub Actions: an error for each check that did not pass, at most ten."""
    found = [
        f"::error {_line(check.at) or _file(run.path)}title={_property(f'steadytrain gate: {check.name}')}"
        f"::{_data(f'{run.run}: {check.reason}')}"
        for run, check in _faults(result)
    ]
    found += [f"::error title=steadytrain gate::{_data(f'not read: {line}')}" for line in result.unreadable]
    if len(found) > ANNOTATIONS_MAX:
        more = len(found) - ANNOTATIONS_MAX + 1
        found = [*found[: ANNOTATIONS_MAX - 1], f"::error title=steadytrain gate::and {more} more checks did not pass"]
    return found


def without_commands(text: str) -> str:
    """``text`` without what GitHub's runner takes for a command: ``##[`` anywhere, and ``::`` at a line's start."""
    return re.sub(r"(?m)^(\s*):(?=:)", r"\1: ", text.replace("##[", "## ["))


FORMATS: Mapping[str, Callable[[GateResult], str]] = {
    "junit": as_junit,
    "sarif": as_sarif,
    "markdown": as_markdown,
}


def _faults(result: GateResult) -> Iterator[tuple[GatedRun, Check]]:
    return ((run, check) for run in result.runs for check in run.checks if check.status != "pass")


def _xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", clean(text))


def _uri(path: str) -> str:
    """Relative to the current folder where it lies in it, as CI systems expect; of a run its description, because a
    folder has no lines."""
    absolute = _with_lines(path)
    inside = _inside(absolute)
    return absolute.as_uri() if inside is None else quote(inside)


def _file(path: str) -> str:
    """The property of an annotation, "" for what lies outside of the workspace: GitHub could not show it."""
    inside = _inside(_with_lines(path))
    return "" if inside is None else f"file={_property(inside)},"


def _line(at: ScriptLine | None) -> str:
    """The line of a script in the workspace, "" if there is none."""
    file = _file(at.file) if at is not None else ""
    return f"{file}line={at.line}," if file and at is not None else ""


def _with_lines(path: str) -> Path:
    absolute = Path(os.path.abspath(path))
    return absolute / RUN_FILE if (absolute / RUN_FILE).is_file() else absolute


def _inside(path: Path) -> str | None:
    """``path`` from the current folder, None if it does not lie in it."""
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except (ValueError, OSError):
        return None


def _markdown(text: str) -> str:
    """Text that shows as it is: no markup, no HTML, no table cell, no mention of a user."""
    escaped = _MARKDOWN.sub(r"\\\1", html.escape(clean(text), quote=False))
    return escaped.replace("@", "@&#8203;")


def _data(text: str) -> str:
    return without_commands(clean(text)).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
