"""Every code block of README and docs does what its page shows, page by page. `make docs-check` runs this file."""

from __future__ import annotations

from pathlib import Path

import pytest
from doc_blocks import ROOT, blocks, pages
from doc_running import BlockError, run_page

PAGES = [page for page in pages() if any("in" in block.directives for block in blocks(page))]


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_do_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    if not list(run_page(list(blocks(page)), tmp_path)):
        pytest.skip("a library that the page is about is not installed")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("```console\n$ exit 3\n```\n", "ended with 3, expected 0"),
        ("```console\n$ echo two\nthree\n```\n", "never printed"),
        ("<!-- status: 1 -->\n```console\n$ true\n```\n", "ended with 0, expected 1"),
    ],
)
def test_a_block_that_does_something_else_fails(text: str, wrong: str, tmp_path: Path) -> None:
    page = ROOT / "page.md"  # only its name is needed
    (tmp_path / "page.md").write_text("<!-- in: empty -->\n```console\n$ true\n```\n" + text, encoding="utf-8")
    found = [
        block.__class__(page, block.line, block.language, block.text, block.directives)
        for block in blocks(tmp_path / "page.md")
    ]
    with pytest.raises(BlockError, match=wrong):
        list(run_page(found, tmp_path))
