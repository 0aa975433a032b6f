"""What the checks of a preflight are for: their docstrings, read from their source, so that no torch is needed.

A check file is one of ``steadytrain.checks.model``.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadytrain.core.plugins import SECTIONS, Threshold, kebab, split_docstring, threshold_rows, thresholds_of

LINE_WIDTH = 110


@dataclass(frozen=True)
class CheckPage:
    """What a check's docstring, fields and class variables say."""

    name: str
    summary: str
    means: str
    causes: str
    next: str
    cost: str
    source: str
    thresholds: tuple[Threshold, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": "steadytrain.check-explanation/1",
            "name": self.name,
            "summary": self.summary,
            "means": self.means,
            "causes": self.causes,
            "next": self.next,
            "cost": self.cost,
            "source": self.source,
            "thresholds": [threshold.to_json() for threshold in self.thresholds],
        }

    @property
    def first_step(self) -> str:
        """The first entry of ``Next``, as one line."""
        entries = re.split(r"^\d+\. ", self.next, flags=re.MULTILINE)
        return " ".join(entries[1].split()) if len(entries) > 1 else ""


def check_files() -> list[Path]:
    """The files that hold a check, by name."""
    return sorted(path for path in Path(__file__).with_name("model").glob("*.py") if path.stem != "__init__")


def check_names() -> list[str]:
    """The names of our checks."""
    return [path.stem.replace("_", "-") for path in check_files()]


def check_pages() -> tuple[CheckPage, ...]:
    """The pages of all our checks, by name."""
    return tuple(_page_of(path) for path in check_files())


def check_page(name: str) -> CheckPage | None:
    """The page of the check called ``name``; None where we have none of that name."""
    path = next((path for path in check_files() if path.stem.replace("_", "-") == name), None)
    return _page_of(path) if path is not None else None


def page_of_class(cls: Any) -> CheckPage:
    """The page of a check of another package, which is loaded already."""
    doc = inspect.cleandoc(cls.__doc__ or "")
    return _page(kebab(cls), doc, getattr(cls, "cost", ""), getattr(cls, "source", ""), thresholds_of(cls))


def as_text(page: CheckPage) -> str:
    """Plain text for a terminal."""
    parts = [f"{page.name}: {page.summary}"]
    for title, text in zip(SECTIONS, (page.means, page.causes, page.next), strict=True):
        if text:
            parts.append(f"{title}:\n{textwrap.indent(text, '  ')}")
    if page.thresholds:
        lines = [textwrap.fill(f"{t.name} = {t.value}: {t.about}.", LINE_WIDTH) for t in page.thresholds]
        parts.append("Thresholds:\n" + textwrap.indent("\n".join(lines), "  "))
    parts.append(f"Cost: {page.cost}")
    if page.source:
        parts.append(f"Source: {page.source}")
    return "\n\n".join(parts) + "\n"


def checks_page() -> str:
    """The page ``docs/checks.md``: every check of ours, in Markdown."""
    pages = check_pages()
    lines = [
        "<!-- Generated from the checks' docstrings. To write it anew:",
        "python -c 'from steadytrain.checks.pages import checks_page; print(checks_page(), end=\"\")' > docs/checks.md",
        "-->",
        "",
        "# Checks",
        "",
        "What `steadytrain preflight` looks at before the first update (`preflight.md`). `steadytrain explain NAME`",
        "prints the same in a terminal.",
        "",
        "| check | cost | |",
        "|---|---|---|",
        *(f"| [{page.name}](#{page.name}) | {page.cost} | {page.summary} |" for page in pages),
    ]
    for page in pages:
        lines += ["", f"## {page.name}", "", page.summary]
        for title, text in zip(SECTIONS, (page.means, page.causes, page.next), strict=True):
            if text:
                lines += ["", f"### {title}", "", text]
        lines += threshold_rows(page.thresholds)
        lines += ["", f"Cost: {page.cost}."]
        if page.source:
            lines += ["", f"Source: {page.source}."]
    return "\n".join(lines) + "\n"


def _page_of(path: Path) -> CheckPage:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    wanted = path.stem.replace("_", "-")
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and kebab(node.name) == wanted]
    assert len(classes) == 1, f"{path.name} holds no class that is called {wanted}"
    (node,) = classes
    cost, source, thresholds = "seconds", "", []
    for entry in node.body:
        if not isinstance(entry, ast.AnnAssign) or not isinstance(entry.target, ast.Name) or entry.value is None:
            continue
        if entry.target.id == "cost":
            cost = ast.literal_eval(entry.value)
        elif entry.target.id == "source":
            source = ast.literal_eval(entry.value)
        elif isinstance(entry.value, ast.Call):
            given = {word.arg: word.value for word in entry.value.keywords}
            about = ast.literal_eval(given["metadata"]).get("about", "not documented") if "metadata" in given else ""
            thresholds.append(Threshold(entry.target.id, ast.literal_eval(given["default"]), about or "not documented"))
    return _page(wanted, inspect.cleandoc(ast.get_docstring(node) or ""), cost, source, thresholds)


def _page(name: str, doc: str, cost: str, source: str, thresholds: Iterable[Threshold]) -> CheckPage:
    summary, sections = split_docstring(doc)
    means, causes, following = (sections.get(title, "") for title in SECTIONS)
    return CheckPage(name, summary, means, causes, following, cost, source, tuple(thresholds))
