"""``steadytrain explain``: the meaning of a symptom, a cause or a check, its possible causes, and what to do next."""

from __future__ import annotations

import re
from typing import Any

import click

from steadytrain.cli._output import say, say_document, say_lines, terminal_width

WORD_MIN, WORD_MAX = 3, 40
FOUND_MAX = 8


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the JSON document (docs/schemas.md) and nothing else.")
@click.argument("name", required=False)
def command(as_json: bool, name: str | None) -> None:
    """Explain a symptom, cause, trial, fix or check; without NAME, list all.

    For a symptom: its meaning, possible causes, next steps, and thresholds with their sources. For a cause: its
    meaning, its rivals, what confirms it, and what fixes it. A few names are both. For a trial: what it changes, what
    it shows, and its side effects. For a fix (intervention): the causes that it mends, and the trial that tests it. For
    a live intervention (of `run --policy`): what it does to a run, and its settings. For a check of `steadytrain
    preflight`: its meaning, thresholds and cost. For one of `steadytrain check-data`: its meaning and what to do.
    """

    from steadytrain.cli._catalogues import catalogues

    if name is not None:
        say(_one(name, as_json=as_json).rstrip("\n"))
        return
    pages = {kind: kind.all() for kind in catalogues()}
    failed = [plugin for kind in pages for plugin in kind.broken()]
    if as_json:
        document: dict[str, Any] = {"schema": "steadytrain.explanations/1"}
        for kind, listed in pages.items():
            document[kind.key] = [{"name": page.name, "summary": page.summary} for page in listed]
        document["broken"] = [{"entry_point": plugin.entry_point, "why": plugin.why} for plugin in failed]
        say_document(document, indent=2, ensure_ascii=True)
        return
    width = max(len(page.name) for listed in pages.values() for page in listed)
    for place, (kind, listed) in enumerate(pages.items()):
        say(f"{chr(10) if place else ''}{kind.heading}:\n")
        for page in listed:
            say_lines(f"{page.name:<{width}}  {page.summary}")
    for plugin in failed:
        say(f"not usable: {plugin.entry_point}: {plugin.why}", err=True)
    say_lines("\nsteadytrain explain NAME shows what one means, what may cause it and what to do next.")


def _one(name: str, *, as_json: bool) -> str:
    """The pages called ``name``: as JSON the first, as text all, because a symptom and a cause may share a name."""
    import json

    from steadytrain.cli._catalogues import catalogues
    from steadytrain.core.errors import UsageError
    from steadytrain.core.plugin_pages import LINE_WIDTH

    found = [(kind, page) for kind in catalogues() if (page := kind.find(name)) is not None]
    if not found:
        raise UsageError(f"nothing is called {name!r}; {_near(name)} (`steadytrain explain` lists all)")
    if as_json:
        kind, page = found[0]
        return json.dumps(kind.to_json(page), indent=2)
    width = min(LINE_WIDTH, terminal_width() or LINE_WIDTH)
    texts = [kind.text(page, width) for kind, page in found]
    heads = ["", *(f"\nAs {_with_article(kind.noun)}\n\n" for kind, _ in found[1:])]
    return "".join(f"{head}{text}" for head, text in zip(heads, texts, strict=True))


def _near(name: str) -> str:
    """The names that are meant: those that hold the word, else those whose first sentence does, else similar ones."""
    from steadytrain.cli._catalogues import catalogues
    from steadytrain.core.plugins import nearest

    pages = {page.name: page.summary for kind in catalogues() for page in kind.all()}
    word = name.strip().lower().replace("_", "-")
    if len(word) >= WORD_MIN:
        is_word = re.compile(rf"(?<![a-z0-9]){re.escape(word)}(?![a-z0-9])", re.IGNORECASE)
        found = [one for one in pages if is_word.search(one)] or [one for one in pages if is_word.search(pages[one])]
        if found:
            more = f" (and {len(found) - FOUND_MAX} more)" if len(found) > FOUND_MAX else ""
            return f"these are about it: {', '.join(found[:FOUND_MAX])}{more}"
    return nearest(word, sorted(pages), otherwise="no name is like it")


def _with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
