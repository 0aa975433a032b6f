"""What the checks of data say of themselves, for ``steadytrain explain``."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any

from steadytrain.checks.data.data_pass import check_classes, check_name, documentation

WIDTH = 110


@dataclass(frozen=True)
class DataPage:
    """A check's docstring in parts, and the columns that it needs."""

    name: str
    summary: str
    means: str
    next: str
    needs: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": "steadytrain.data-check-explanation/1",
            "name": self.name,
            "summary": self.summary,
            "means": self.means,
            "next": self.next,
            "needs": list(self.needs),
        }

    def text(self) -> str:
        parts = [f"{self.name}: {self.summary}"]
        for title, text in (("Means", self.means), ("Next", self.next)):
            parts.append(f"{title}:\n" + textwrap.indent(textwrap.fill(text, WIDTH - 2), "  "))
        parts.append("A check of data: `steadytrain check-data PATH` (docs/check-data.md)")
        return "\n\n".join(parts) + "\n"


def data_pages() -> tuple[DataPage, ...]:
    """A page for each check of data, by name."""
    found = []
    for cls in check_classes():
        about = documentation(cls)
        found.append(DataPage(check_name(cls), about["summary"], about["Means"], about["Next"], cls.reads))
    return tuple(found)


def data_page(name: str) -> DataPage | None:
    """The page of the check called ``name``; None where none is."""
    return next((page for page in data_pages() if page.name == name), None)
