"""What the site adds to the pages of ``docs``: MkDocs calls the functions ``on_...`` while it builds.

- README, CONTRIBUTING, SECURITY and the changelog become pages, the README the first one.
- A catalogue (``symptoms.md``, ``causes.md``, ...) becomes a table, and each of its sections a page of its own.
- The reference of the public API has a directive of mkdocstrings for each public name.
- A page of ``docs`` that the navigation does not list stands under "More", so none is lost.
- The picture of the rooms is drawn here: a renderer for it would be a script of another host.
"""

from __future__ import annotations

import html
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import steadytrain
from steadytrain.cli._catalogues import FILES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
TOP_PAGES = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md"}
TOP_PAGES |= {"security.md": "SECURITY.md", "changelog.md": "CHANGELOG.md"}
API_PAGE = "api-reference.md"
OPTIONS = (
    "steadytrain.attach.options.Options",
    "steadytrain.api.replays.ReplayOptions",
    "steadytrain.preflight_runs.in_code.Given",
)
"""What ``**options`` of ``watch``, ``replay`` and ``preflight`` stands for."""

LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)#\s]*)(#[^)\s]*)?\)")
SECTION = re.compile(r"^## (\S+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
MERMAID = re.compile(r"^```mermaid\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
WORKER_SHIM = re.compile(r'<script src="https://unpkg\.com/iframe-worker/shim"></script>')

OPTIONAL = "?"
"""Behind a page of the navigation that may not be there yet."""

CATALOGUES = frozenset(FILES.values())


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of folders and catalogues, and those that are not listed, into the navigation."""
    assert config.nav is not None
    config.nav = [_expanded(entry) for entry in config.nav]
    listed = set(_paths(config.nav))
    more = [path for path in sorted(_pages_of_docs()) if path not in listed]
    if more:
        config.nav.append({"More": more})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not files of ``docs``."""
    for page, source in TOP_PAGES.items():
        _add(files, config, page, (ROOT / source).read_text(encoding="utf-8"))
    _add(files, config, API_PAGE, _api_page())
    for name in CATALOGUES:
        folder = name.removesuffix(".md")
        for title, text in _sections(name).items():
            _add(files, config, f"{folder}/{title}.md", f"# {title}\n{_raised(text)}")
    return files


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    """The page as the site shows it: catalogues as tables, links to where their targets are in the site."""
    path = page.file.src_uri
    if path in CATALOGUES:
        markdown = SECTION.sub("", markdown)
    markdown = MERMAID.sub(lambda found: _picture(found[1]), markdown)
    return LINK.sub(lambda found: _relinked(found, path), markdown)


def on_post_page(output: str, page: Any, config: MkDocsConfig) -> str:
    """Without the script that the theme loads from another host; it is for the search in pages opened as files."""
    return WORKER_SHIM.sub("", output)


def on_post_template(output: str, template_name: str, config: MkDocsConfig) -> str:
    """The same for pages that are no page of the navigation, such as 404."""
    return WORKER_SHIM.sub("", output)


def _expanded(entry: Any) -> Any:
    """An entry of the navigation with the pages that ``folder/*`` stands for."""
    if not isinstance(entry, dict):
        return entry.removesuffix(OPTIONAL)
    ((title, inner),) = entry.items()
    if isinstance(inner, list):
        return {title: [_expanded(part) for part in inner if _is_there(part)]}
    if not inner.endswith("/*"):
        return entry
    folder = inner.removesuffix("/*")
    if f"{folder}.md" in CATALOGUES:
        return {title: [f"{folder}.md", *(f"{folder}/{name}.md" for name in _sections(f"{folder}.md"))]}
    return {title: [path for path in sorted(_pages_of_docs()) if path.startswith(f"{folder}/")]}


def _is_there(entry: Any) -> bool:
    return not str(entry).endswith(OPTIONAL) or (DOCS / entry.removesuffix(OPTIONAL)).is_file()


def _paths(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    inner = nav.values() if isinstance(nav, dict) else nav
    return [path for part in inner for path in _paths(part)]


def _pages_of_docs() -> list[str]:
    return [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")]


def _add(files: Files, config: MkDocsConfig, path: str, text: str) -> None:
    files.append(File.generated(config, path, content=text))


def _sections(catalogue: str) -> dict[str, str]:
    return dict(SECTION.findall((DOCS / catalogue).read_text(encoding="utf-8")))


def _raised(text: str) -> str:
    """A section as a page: its headings are one level higher, and headings end the one sentence that opens it."""
    return re.sub(r"^##(#+ )", r"#\1", text, flags=re.MULTILINE)


def _relinked(found: re.Match[str], page: str) -> str:
    """A link as it must be in the site."""
    label, path, anchor = found[1], found[2], found[3] or ""
    if re.match(r"[a-z]+:", path):
        return found[0]
    source = TOP_PAGES.get(page) or f"docs/{page}"
    folder = page.partition("/")[0]
    if f"{folder}.md" in CATALOGUES and "/" in page:
        source = f"docs/{folder}.md"
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path)) if path else source
    place = {source: name for name, source in TOP_PAGES.items()}.get(target, target.removeprefix("docs/"))
    if place in CATALOGUES and anchor[1:] in _sections(place):
        place, anchor = f"{place.removesuffix('.md')}/{anchor[1:]}.md", ""
    elif not path:
        return found[0]
    elif place == target and not target.startswith("docs/"):
        return f"{label} (`{target}`)"  # a file of the repository that the site has not
    return f"[{label}]({posixpath.relpath(place, posixpath.dirname(page) or '.')}{anchor})"


def _api_page() -> str:
    names = [name for name in steadytrain.__all__ if name != "__version__"]
    places = {name: steadytrain._PLACES.get(name, "steadytrain.core.errors") for name in names}
    functions = sorted(name for name in names if name[0].islower())
    order = [*functions, *sorted(set(names) - set(functions))]
    parts = [f"::: {place}\n" for place in (*(f"{places[name]}.{name}" for name in order), *OPTIONS)]
    opening = "# API reference\n\nGenerated from the docstrings. [The public API](api.md) is the overview.\n"
    return "\n".join([opening, *parts])


def _picture(source: str) -> str:
    """The rooms of the architecture as rows of boxes, from the text of the diagram."""
    rows = re.findall(r'subgraph \w+\["(.*?)"\](.*?)\n\s*end\n', source, re.DOTALL)
    drawn = []
    for title, body in rows:
        rooms = [room.strip() for line in body.splitlines() if "-->" in line for room in line.split("-->")]
        boxes = "".join(f"<span>{html.escape(room)}</span>" for room in rooms)
        drawn.append(f'<div class="floor"><strong>{html.escape(title)}</strong><div>{boxes}</div></div>')
    return f'<div class="house">{"".join(drawn)}</div>\n'
