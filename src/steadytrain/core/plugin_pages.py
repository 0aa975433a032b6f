"""The page of a plug-in: what its docstring, its fields and the traits that it declares say.

One type for all kinds. ``steadytrain explain`` prints a page, ``--json`` writes it, and the catalogues in ``docs`` are
made of them (``make docs``). A kind declares beside its contract, as a :class:`Pages`, what its pages have besides. Not
here: what any plug-in does.
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


@dataclass(frozen=True)
class Threshold:
    """A field of a plug-in: its default, and where that number comes from."""

    name: str
    value: Any
    about: str

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "value": self.value, "about": self.about}


@dataclass(frozen=True)
class Page:
    """What a plug-in says of itself. ``sections`` are those that its docstring has, by their heading in small letters;
    ``traits`` what its kind shows besides, as JSON values."""

    name: str
    summary: str
    sections: Mapping[str, str]
    thresholds: tuple[Threshold, ...]
    traits: Mapping[str, Any]

    @property
    def first_step(self) -> str:
        """The first entry of ``Next``, as one line."""
        entries = re.split(r"^\d+\. ", self.sections.get("next", ""), flags=re.MULTILINE)
        return " ".join(entries[1].split()) if len(entries) > 1 else ""


def _nothing(page: Page) -> list[str]:
    return []


@dataclass(frozen=True)
class Pages:
    """How the pages of one kind are made and written.

    Args:
        kind: whose plug-ins they are about.
        noun: what one of them explains.
        key: the plural of the kind, in ``steadytrain explain --json``.
        heading: what stands over their names in the list that ``steadytrain explain`` prints.
        schema: of the document of one page.
        document: the fields of that document, in order: parts of a page, sections and traits.
        traits: what a plug-in, or its class, declares besides its docstring and its fields.
        closing: paragraphs at the end of a page in a terminal.
        headings: the sections of a docstring.
        flows: whether a section is one paragraph, however its lines are broken.
        thresholds: whether its fields are thresholds.
        title, intro, columns, markdown_closing: of the catalogue in Markdown; a column is a trait in its table.
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
        """The page of a plug-in, or of its class."""
        summary, sections = split_docstring(inspect.cleandoc(plugin.__doc__ or ""), self.headings)
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
        """The pages of the shipped plug-ins, by name."""
        return tuple(self.of(cls) for cls in self.kind.described(outside=False))

    def all(self) -> tuple[Page, ...]:
        """The pages of every usable plug-in: the shipped ones by name, then those of other packages."""
        return tuple(self.of(cls) for cls in self.kind.described())

    def find(self, name: str) -> Page | None:
        """The page of the plug-in called ``name``; None where there is none."""
        return next((self.of(one) for one in self.kind.described() if name_of(one) == name), None)

    def names(self) -> tuple[str, ...]:
        """The names that have a page."""
        return tuple(map(name_of, self.kind.described()))

    def broken(self) -> tuple[Broken, ...]:
        """What other packages name and has no page."""
        return self.kind.not_described()

    def to_json(self, page: Page) -> dict[str, Any]:
        """The document of a page; a section that its docstring lacks is empty."""
        parts: dict[str, Any] = {title.lower(): "" for title in self.headings}
        parts |= {"name": page.name, "summary": page.summary, **page.sections, **page.traits}
        parts["thresholds"] = [threshold.to_json() for threshold in page.thresholds]
        return {"schema": self.schema, **{name: parts[name] for name in self.document}}

    def text(self, page: Page) -> str:
        """Plain text for a terminal."""
        parts = [wrapped(f"{page.name}: {page.summary}")]
        for title, text in self._sections(page):
            parts.append(f"{title}:\n{indented(wrapped(text, LINE_WIDTH - 2) if self.flows else text)}")
        if page.thresholds:
            lines = [wrapped(f"{t.name} = {t.value}: {t.about}.", hanging="  ") for t in page.thresholds]
            parts.append("Thresholds:\n" + indented("\n".join(lines)))
        return "\n\n".join([*parts, *self.closing(page)]) + "\n"

    def markdown(self, *, command: str, outside: bool = False) -> str:
        """The catalogue of the shipped plug-ins, which ``command`` writes; ``outside`` adds those of other packages."""
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
    """First sentence and sections of a cleaned docstring. A section is a heading with a colon over indented lines."""
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
    """The fields of a plug-in with the values that it has, or of its class with their defaults."""
    return tuple(
        Threshold(field.name, getattr(plugin, field.name, field.default), field.metadata.get("about", "not documented"))
        for field in (fields(plugin) if is_dataclass(plugin) else ())
    )


def wrapped(text: str, width: int = LINE_WIDTH, *, hanging: str = "") -> str:
    """``text`` in lines of ``width`` characters; all but the first begin with ``hanging``."""
    return textwrap.fill(text, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False)


def indented(text: str) -> str:
    """``text`` two spaces to the right."""
    return "\n".join(f"  {line}".rstrip() for line in text.splitlines())


def _threshold_table(thresholds: Iterable[Threshold]) -> list[str]:
    rows = [f"| `{t.name}` | {t.value} | {t.about}. |" for t in thresholds]
    return ["", "### Thresholds", "", "| field | default | |", "|---|---|---|", *rows] if rows else []
