"""The page of a plug-in, made from its docstring, its fields and its declared traits.

All kinds share one type. ``steadytrain explain`` prints a page, ``--json`` writes it, and ``make docs`` builds the
catalogues in ``docs`` from the pages. Each kind declares its additions as a :class:`Pages` beside its contract. Not
here: what a plug-in does.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from steadytrain.core.plugins import Broken, Kind, name_of

SECTIONS = ("Means", "Causes", "Next")
LINE_WIDTH = 110
ITEM = re.compile(r"\s*(?:[-*]|\d+\.)\s+")
"""How an item of a list in a docstring begins."""


@dataclass(frozen=True)
class Threshold:
    """A field of a plug-in: its default, and the source of that number."""

    name: str
    value: Any
    about: str

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "value": self.value, "about": self.about}


@dataclass(frozen=True)
class Page:
    """The documentation of a plug-in. ``sections`` holds the sections of its docstring under their lower-case headings;
    ``traits`` holds what its kind adds, as JSON values.
    """

    name: str
    summary: str
    sections: Mapping[str, str]
    thresholds: tuple[Threshold, ...]
    traits: Mapping[str, Any]

    @property
    def next_steps(self) -> tuple[str, ...]:
        """The entries of ``Next``, each as one line."""
        entries = re.split(r"^\d+\. ", self.sections.get("next", ""), flags=re.MULTILINE)
        return tuple(" ".join(entry.split()) for entry in entries[1:])

    @property
    def first_step(self) -> str:
        """The first entry of ``Next``, "" without one."""
        return next(iter(self.next_steps), "")


def _nothing(page: Page) -> list[str]:
    return []


@dataclass(frozen=True)
class Pages:
    """How to make and write the pages of one kind.

    Args:
        kind: the kind of plug-in.
        noun: what one plug-in explains.
        key: the plural of the kind, in ``steadytrain explain --json``.
        heading: the heading above their names in the list that ``steadytrain explain`` prints.
        schema: the schema name of a page's document.
        document: the fields of that document, in order: parts of a page, sections and traits.
        traits: returns what a plug-in or its class declares besides its docstring and fields.
        closing: returns paragraphs for the end of a page in a terminal.
        headings: the section headings of a docstring.
        flows: whether a section is one paragraph, so that line breaks do not matter.
        thresholds: whether the plug-in's fields are thresholds.
        title, intro, columns, markdown_closing: for the Markdown catalogue; each column shows a trait.
    """

    kind: Kind[Any]
    noun: str
    key: str
    heading: str
    schema: str
    document: tuple[str, ...] = ("name", "summary")
    traits: Callable[[Any], Mapping[str, Any]] = lambda plugin: {}
    closing: Callable[[Page], Iterable[str]] = _nothing
    headings: tuple[str, ...] = SECTIONS
    flows: bool = False
    thresholds: bool = True
    title: str = ""
    intro: str = ""
    columns: tuple[str, ...] = ()
    markdown_closing: Callable[[Page], Iterable[str]] = _nothing

    def of(self, plugin: Any) -> Page:
        """Make the page of a plug-in or its class."""
        summary, sections = split_docstring(inspect.cleandoc(plugin.__doc__ or "").replace("``", "`"), self.headings)
        if self.flows:
            sections = {title: " ".join(text.split()) for title, text in sections.items()}
        return Page(
            name_of(plugin),
            summary,
            {title.lower(): text for title, text in sections.items() if text},
            thresholds_of(plugin) if self.thresholds else (),
            self.traits(plugin),
        )

    def shipped(self) -> tuple[Page, ...]:
        """The pages of the shipped plug-ins, sorted by name."""
        return tuple(self.of(cls) for cls in self.kind.described(outside=False))

    def all(self) -> tuple[Page, ...]:
        """The pages of all usable plug-ins: the shipped ones by name, then those of other packages."""
        return tuple(self.of(cls) for cls in self.kind.described())

    def find(self, name: str) -> Page | None:
        """The page of the plug-in called ``name``, None if there is none."""
        return next((self.of(one) for one in self.kind.described() if name_of(one) == name), None)

    def names(self) -> tuple[str, ...]:
        """The names of the plug-ins that have a page."""
        return tuple(map(name_of, self.kind.described()))

    def broken(self) -> tuple[Broken, ...]:
        """The plug-ins of other packages that have no page, with the reasons."""
        return self.kind.not_described()

    def to_json(self, page: Page) -> dict[str, Any]:
        """The document of a page. A section that the docstring lacks is ""."""
        parts: dict[str, Any] = {title.lower(): "" for title in self.headings}
        parts |= {"name": page.name, "summary": page.summary, **page.sections, **page.traits}
        parts["thresholds"] = [threshold.to_json() for threshold in page.thresholds]
        return {"schema": self.schema, **{name: parts[name] for name in self.document}}

    def text(self, page: Page, width: int = LINE_WIDTH) -> str:
        """Plain text for a terminal of ``width`` characters."""
        parts = [wrapped(f"{page.name}: {page.summary}", width)]
        for title, text in self._sections(page):
            shown = wrapped(text, width - 2) if self.flows else filled(text, width - 2)
            parts.append(f"{title}:\n{indented(shown)}")
        if page.thresholds:
            lines = [wrapped(f"{t.name} = {t.value}: {t.about}.", width - 2, hanging="  ") for t in page.thresholds]
            parts.append("Thresholds:\n" + indented("\n".join(lines)))
        return "\n\n".join([*parts, *self.closing(page)]) + "\n"

    def markdown(self, *, command: str, outside: bool = False) -> str:
        """The Markdown catalogue of the shipped plug-ins. ``outside`` adds those of other packages; ``command`` is the
        command that regenerates the file.
        """
        pages = self.all() if outside else self.shipped()
        lines = [f"<!-- Generated from docstrings. To write it anew: {command} -->", "", f"# {self.title}", ""]
        lines += [self.intro, "", f"| {' | '.join([self.noun, *self.columns])} | |"]
        lines += ["|" + "---|" * (2 + len(self.columns))]
        for page in pages:
            shown = "".join(f" {page.traits[name]} |" for name in self.columns)
            lines.append(f"| [{page.name}](#{page.name}) |{shown} {page.summary} |")
        for page in pages:
            lines += ["", f"## {page.name}", "", page.summary]
            for title, text in self._sections(page):
                lines += ["", f"### {title}", "", text]
            lines += _threshold_table(page.thresholds)
            for paragraph in self.markdown_closing(page):
                lines += ["", paragraph]
        return "\n".join(lines) + "\n"

    def _sections(self, page: Page) -> list[tuple[str, str]]:
        return [(title, page.sections[title.lower()]) for title in self.headings if title.lower() in page.sections]


def split_docstring(text: str, headings: Iterable[str] = SECTIONS) -> tuple[str, dict[str, str]]:
    """Split a cleaned docstring into its first sentence and its sections. A section is a heading with a colon over
    indented lines.
    """
    paragraphs: dict[str, list[str]] = {"": []}
    current = ""
    for line in text.splitlines():
        heading = line.rstrip().removesuffix(":")
        if heading in headings and line.rstrip().endswith(":"):
            current = heading
            paragraphs[current] = []
        else:
            paragraphs[current].append(line)
    summary = " ".join("\n".join(paragraphs.pop("")).split("\n\n")[0].split())
    return summary, {title: inspect.cleandoc("\n" + "\n".join(lines)) for title, lines in paragraphs.items()}


def thresholds_of(plugin: Any) -> tuple[Threshold, ...]:
    """The fields of a plug-in with their values, or of its class with their defaults."""
    return tuple(
        Threshold(field.name, getattr(plugin, field.name, field.default), field.metadata.get("about", "not documented"))
        for field in (fields(plugin) if is_dataclass(plugin) else ())
    )


def wrapped(text: str, width: int = LINE_WIDTH, *, hanging: str = "") -> str:
    """``text`` in lines of ``width`` characters. All lines but the first begin with ``hanging``."""
    return textwrap.fill(text, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False)


def filled(text: str, width: int) -> str:
    """``text`` as it is if its lines fit into ``width`` characters, else its paragraphs and list items filled again."""
    if all(len(line) <= width for line in text.splitlines()):
        return text
    parts: list[str] = []
    for line in text.splitlines():
        begins = not parts or not line.strip() or not parts[-1] or ITEM.match(line)
        parts += [line] if begins else []
        if not begins:
            parts[-1] += f" {line.strip()}"
    return "\n".join(wrapped(part, width, hanging=" " * _hang(part)) if part.strip() else "" for part in parts)


def _hang(item: str) -> int:
    found = ITEM.match(item)
    return found.end() if found else len(item) - len(item.lstrip())


def indented(text: str) -> str:
    """``text`` indented by two spaces."""
    return "\n".join(f"  {line}".rstrip() for line in text.splitlines())


def _threshold_table(thresholds: Iterable[Threshold]) -> list[str]:
    rows = [f"| `{t.name}` | {t.value} | {t.about}. |" for t in thresholds]
    return ["", "### Thresholds", "", "| field | default | |", "|---|---|---|", *rows] if rows else []
