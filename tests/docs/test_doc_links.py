"""Every relative link of README and docs leads to a file, and to a heading in it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from doc_blocks import ROOT, pages
from markdown_it import MarkdownIt

MARKDOWN = MarkdownIt().enable("table")
SCHEME = re.compile(r"[a-z]+:")


def links(page: Path) -> list[str]:
    tokens = [child for token in MARKDOWN.parse(page.read_text(encoding="utf-8")) for child in token.children or ()]
    found = [token.attrs.get("href") or token.attrs.get("src") for token in tokens]  # of links and images
    return [str(link) for link in found if link and not SCHEME.match(str(link))]


@cache
def anchors(page: Path) -> frozenset[str]:
    tokens = MARKDOWN.parse(page.read_text(encoding="utf-8"))
    titles = [tokens[at + 1] for at, token in enumerate(tokens) if token.type == "heading_open"]
    named = re.findall(r'<a id="([^"]+)">', page.read_text(encoding="utf-8"))
    return frozenset([*(slug("".join(part.content for part in title.children or ())) for title in titles), *named])


def slug(title: str) -> str:
    """The anchor of a heading, as GitHub and the site make it."""
    return re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")


def broken(page: Path) -> list[str]:
    found = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            found.append(f"{page.name}: {link}: no such file")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            found.append(f"{page.name}: {link}: no such heading")
    return found


def test_every_link_leads_somewhere() -> None:
    assert len(pages()) > 50
    assert [fault for page in pages() for fault in broken(page)] == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text("# A `b` title\n\n[here](#a-b-title), [there](b.md), [nowhere](#a-title)\n", encoding="utf-8")
    assert broken(page) == ["a.md: b.md: no such file", "a.md: #a-title: no such heading"]
    assert ROOT.is_dir()
