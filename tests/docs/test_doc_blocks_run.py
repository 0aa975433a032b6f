"""Every code block of README and docs does what its page shows, page by page. `make docs-check` runs this file.

The variable DOC_FROM names the page to begin with: a run that was cut off goes on there.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from doc_blocks import ROOT, Block, blocks, pages, pages_from
from doc_running import BlockError, run_page

PAGES = [page for page in pages() if any("in" in block.directives for block in blocks(page))]
CHOSEN = pages_from(PAGES, os.environ.get("DOC_FROM", ""))


@pytest.mark.long
@pytest.mark.parametrize("page", CHOSEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_do_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    if not list(run_page(list(blocks(page)), tmp_path)):
        pytest.skip("a library that the page is about is not installed")


def test_a_run_begins_at_the_page_that_is_named() -> None:
    assert pages_from(PAGES, "") == tuple(PAGES)
    for name in ("gate", "docs/gate.md", "gate.md"):
        first, *others = pages_from(PAGES, name)
        assert first == ROOT / "docs" / "gate.md"
        assert [first, *others] == PAGES[PAGES.index(first) :]
    with pytest.raises(ValueError, match=r"FROM=gaet: no page with blocks that run; one of alerts, "):
        pages_from(PAGES, "gaet")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("```console\n$ exit 3\n```\n", "ended with 3, expected 0"),
        ("```console\n$ echo two\nthree\n```\n", "never printed"),
        ("<!-- status: 1 -->\n```console\n$ true\n```\n", "ended with 0, expected 1"),
    ],
)
def test_a_block_that_does_something_else_fails(text: str, wrong: str, tmp_path: Path) -> None:
    found = _read("<!-- in: empty -->\n```console\n$ true\n```\n" + text, tmp_path)
    with pytest.raises(BlockError, match=wrong):
        list(run_page(found, tmp_path))


def test_steps_of_ci_use_the_package_of_this_tree(tmp_path: Path) -> None:
    steps = '- run: pip install torch "$STEADYTRAIN"\n- run: steadytrain --version\n'
    found = _read(f"<!-- in: empty; as: steps -->\n```yaml\n{steps}```\n", tmp_path)
    assert len(list(run_page(found, tmp_path))) == 1


def _read(text: str, folder: Path) -> list[Block]:
    path = folder / "page.md"
    path.write_text(text, encoding="utf-8")
    page = ROOT / "page.md"  # only its name is needed
    return [Block(page, block.line, block.language, block.text, block.directives) for block in blocks(path)]
