"""The page of a live intervention: what it does, from which source, and its settings. Torch-free."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from steadytrain.core.plugin_pages import Page, Pages, indented, wrapped
from steadytrain.guard.intervention import INTERVENTIONS

SETTINGS = "Args:"
SETTING = re.compile(r"^(\w+): ")


def _traits(cls: Any) -> Mapping[str, Any]:
    text = inspect.cleandoc(cls.__doc__ or "").replace("``", "`")
    body, _, given = text.partition(SETTINGS)
    about: dict[str, str] = {}
    name = ""
    for line in inspect.cleandoc("\n" + given).splitlines():
        found = SETTING.match(line)
        name = found[1] if found else name
        about[name] = f"{about.get(name, '')} {line[found.end() :] if found else line.strip()}".strip()
    return {
        "kind": "live intervention",
        "text": [" ".join(part.split()) for part in body.split("\n\n")[1:] if part.strip()],
        "settings": [
            {"name": one.name.replace("_", "-"), "default": one.default, "about": about.get(one.name, "").rstrip(".")}
            for one in fields(cls)
            if not one.name.startswith("_")
        ],
        "replayed": cls.replayed,
        "taken_back": not cls.stays,
    }


def _closing(page: Page) -> list[str]:
    parts = [wrapped(text) for text in page.traits["text"]]
    lines = [wrapped(f"{_default(one)}: {one['about']}.", hanging="  ") for one in page.traits["settings"]]
    return [*parts, *(["Settings:\n" + indented("\n".join(lines))] if lines else []), wrapped(_facts(page))]


def _markdown_closing(page: Page) -> list[str]:
    rows = [f"| `{one['name']}` | {_value(one)} | {one['about']}. |" for one in page.traits["settings"]]
    table = ["\n".join(["| setting | default | |", "|---|---|---|", *rows])] if rows else []
    return [*map(wrapped, page.traits["text"]), *table, _facts(page)]


def _facts(page: Page) -> str:
    replay = "A replay of the steps makes the same change." if page.traits["replayed"] else "A replay does not make it."
    return replay if page.traits["taken_back"] else f"{replay} There is nothing to take back."


def _default(setting: Mapping[str, Any]) -> str:
    return f"{setting['name']} = {_value(setting)}"


def _value(setting: Mapping[str, Any]) -> str:
    return str(setting["default"]) if setting["default"] != "" else '""'


LIVE_INTERVENTION_PAGES = Pages(
    kind=INTERVENTIONS,
    noun="live intervention",
    key="live_interventions",
    heading="Live interventions",
    schema="steadytrain.live-intervention-explanation/1",
    document=("kind", "name", "summary", "text", "settings", "replayed", "taken_back"),
    traits=_traits,
    closing=_closing,
    headings=(),
    thresholds=False,
    title="Live interventions",
    intro="What may be done to a run that goes on (`guard.md`): by `always` or `[ladders]` of a policy file, by\n"
    "`steadytrain ctl RUN apply NAME`, and by `steadytrain run --resume-from INCIDENT --with NAME`.",
    markdown_closing=_markdown_closing,
)
