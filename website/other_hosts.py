"""Ends with 1 if a page of the built site loads anything from another host: `python website/other_hosts.py build/site`.

A link that a reader follows may lead elsewhere; what a browser loads by itself may not.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

LOADED = dict.fromkeys(("script", "img", "iframe", "source", "video", "audio"), "src") | {"link": "href"}
NOT_LOADED = {"canonical", "next", "prev"}
"""Relations of a link element that a browser does not load."""

STYLE_URL = re.compile(r"(?:@import\s+|url\()\s*[\"']?((?:https?:)?//[^\"')\s]+)")


class Loads(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        address = values.get(LOADED.get(tag, "")) or ""
        if re.match(r"(https?:)?//", address) and values.get("rel") not in NOT_LOADED:
            self.found.append(address)


def other_hosts(folder: Path) -> list[str]:
    found = []
    for page in sorted(folder.rglob("*.html")):
        parser = Loads()
        parser.feed(page.read_text(encoding="utf-8"))
        found += [f"{page.relative_to(folder)}: {address}" for address in parser.found]
    for style in sorted(folder.rglob("*.css")):
        text = style.read_text(encoding="utf-8")
        found += [f"{style.relative_to(folder)}: {address}" for address in STYLE_URL.findall(text)]
    return found


if __name__ == "__main__":
    loads = other_hosts(Path(sys.argv[1]))
    print("\n".join(loads) or "no page loads anything from another host")
    sys.exit(1 if loads else 0)
