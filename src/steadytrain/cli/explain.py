"""``steadytrain explain``: the meaning of a symptom, a cause or a check, its possible causes, and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from steadytrain.cli._output import say, say_document, say_lines, terminal_width

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from steadytrain.core.plugin_pages import Page, Pages

SURELY = 0.85
"""So near a name, one word is that name misspelled, and not a search."""

FOUND_MAX = 20


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the JSON document (docs/schemas.md) and nothing else.")
@click.argument("words", required=False, nargs=-1, metavar="[NAME | WORDS...]")
def command(as_json: bool, words: tuple[str, ...]) -> None:
    """Explain a symptom, cause, trial, fix or check by its name, or find them by words; without either, list all.

    For a symptom: its meaning, possible causes, next steps, and thresholds with their sources. For a cause: its
    meaning, its rivals, what confirms it, and what fixes it. A few names are both. For a trial: what it changes, what
    it shows, and its side effects. For a fix (intervention): the causes that it mends, and the trial that tests it. For
    a live intervention (of `run --policy`): what it does to a run, and its settings. For a check of `steadytrain
    preflight`: its meaning, thresholds and cost. For one of `steadytrain check-data`: its meaning and what to do.

    Words that are no name, such as `nan` or `learning rate`, list what is about them.
    """

    from steadytrain.cli._catalogues import catalogues

    if not words:
        _say_all(as_json=as_json)
        return
    named = _named("-".join(words))
    if named:
        say((_json_of(*named[0]) if as_json else _texts(named)).rstrip("\n"))
        return
    from steadytrain.core.plugin_search import search

    asked = " ".join(words)
    hits = search(words, catalogues(), partly=not _is_mistyped(words))
    if not hits or _is_mistyped(words, nearness=SURELY):
        raise _unknown(asked)
    shown = hits if as_json else hits[:FOUND_MAX]
    found = {kind: [hit.page for hit in shown if hit.kind is kind] for kind in catalogues()}
    found = {kind: listed for kind, listed in found.items() if listed}
    if as_json:
        _say_document(found, asked=asked)
        return
    more = f" {len(hits) - FOUND_MAX} more are about it: a further word narrows the search." if hits[FOUND_MAX:] else ""
    say_lines(f"Nothing is called {asked!r}; these are about it.{more}\n")
    _say_lists(found)
    say_lines(f"\nnext  steadytrain explain {hits[0].page.name}")


def _say_all(*, as_json: bool) -> None:
    from steadytrain.cli._catalogues import catalogues

    pages = {kind: kind.all() for kind in catalogues()}
    if as_json:
        _say_document(pages)
        return
    _say_lists(pages)
    for plugin in (plugin for kind in pages for plugin in kind.broken()):
        say(f"not usable: {plugin.entry_point}: {plugin.why}", err=True)
    say_lines("\nsteadytrain explain NAME shows what one means, what may cause it and what to do next.")


def _say_lists(pages: Mapping[Pages, Sequence[Page]]) -> None:
    """Print a list for each kind, with the first sentence of each page."""
    width = max(len(page.name) for listed in pages.values() for page in listed)
    for place, (kind, listed) in enumerate(pages.items()):
        say(f"{chr(10) if place else ''}{kind.heading}:\n")
        for page in listed:
            say_lines(f"{page.name:<{width}}  {page.summary}")


def _say_document(pages: Mapping[Pages, Sequence[Page]], *, asked: str | None = None) -> None:
    document: dict[str, Any] = {"schema": "steadytrain.explanations/1"}
    if asked is not None:
        document["asked"] = asked
    for kind, listed in pages.items():
        document[kind.key] = [{"name": page.name, "summary": page.summary} for page in listed]
    failed: Iterable[Any] = () if asked is not None else (plugin for kind in pages for plugin in kind.broken())
    document["broken"] = [{"entry_point": plugin.entry_point, "why": plugin.why} for plugin in failed]
    say_document(document, indent=2, ensure_ascii=True)


def _named(name: str) -> list[tuple[Pages, Page]]:
    """The pages called ``name``: more than one where a symptom and a cause share it."""
    from steadytrain.cli._catalogues import catalogues

    spelled = name.strip().lower().replace("_", "-").replace(" ", "-")
    return [(kind, page) for kind in catalogues() if (page := kind.find(spelled)) is not None]


def _json_of(kind: Pages, page: Page) -> str:
    import json

    return json.dumps(kind.to_json(page), indent=2)


def _texts(found: Sequence[tuple[Pages, Page]]) -> str:
    from steadytrain.core.plugin_pages import LINE_WIDTH

    width = min(LINE_WIDTH, terminal_width() or LINE_WIDTH)
    texts = [kind.text(page, width) for kind, page in found]
    heads = ["", *(f"\nAs {_with_article(kind.noun)}\n\n" for kind, _ in found[1:])]
    return "".join(f"{head}{text}" for head, text in zip(heads, texts, strict=True))


def _is_mistyped(words: Sequence[str], nearness: float | None = None) -> bool:
    """Whether ``words`` are one name, spelled almost like one that exists."""
    from steadytrain.core.plugins import NEARNESS_MIN, similar

    name = words[0].strip().replace(" ", "-")
    return len(words) == 1 and bool(similar(name, _all_names(), cutoff=nearness or NEARNESS_MIN))


def _unknown(asked: str) -> Exception:
    from steadytrain.core.errors import UsageError
    from steadytrain.core.plugins import nearest

    near = nearest(
        asked.strip().lower().replace(" ", "-"),
        _all_names(),
        otherwise="no name is like it, and no page has all these words",
    )
    return UsageError(f"nothing is called {asked!r}; {near} (`steadytrain explain` lists all)")


def _all_names() -> list[str]:
    from steadytrain.cli._catalogues import catalogues

    return sorted({name for kind in catalogues() for name in kind.names()})


def _with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
