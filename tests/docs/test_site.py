"""The site lists pages that exist, and finds what a page would load from another host. `make site` builds it, and so
does a test here: strict, so a link, an anchor or an entry of the navigation that leads nowhere ends it.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from doc_blocks import ROOT

from steadytrain.cli._catalogues import FILES

GENERATED = {"index.md", "api-reference.md", "contributing.md", "security.md", "changelog.md"}


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "website" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_page_of_the_navigation_exists_once() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r"- (\S+\.md)(\??)$", navigation, re.MULTILINE)
    names = [name for name, _ in listed]
    assert len(names) > 40
    assert len(set(names)) == len(names)
    missing = [name for name, optional in listed if not optional and not (ROOT / "docs" / name).is_file()]
    assert set(missing) == GENERATED


def test_each_catalogue_stands_in_the_navigation_with_its_pages() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = {f"{folder}.md" for folder in re.findall(r": (\S+)/\*$", navigation, re.MULTILINE)}
    assert set(FILES.values()) <= listed


def built(site: Path, *configuration: str) -> subprocess.CompletedProcess[str]:
    if os.environ.get("CI") != "true":
        pytest.importorskip("mkdocs", reason="`make test` installs it")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site), *configuration]
    return subprocess.run(
        build, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )


@pytest.mark.long
@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_another_host(tmp_path: Path) -> None:
    done = built(tmp_path / "site")
    assert done.returncode == 0, done.stderr
    assert load("other_hosts").other_hosts(tmp_path / "site") == []
    assert (tmp_path / "site" / "symptoms" / "loss-spike.html").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("link", ["nowhere.md", "other.md#nowhere"])
def test_a_link_that_leads_nowhere_ends_the_build(link: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Here\n\n[there]({link}), [other](other.md)\n", encoding="utf-8")
    (tmp_path / "docs" / "other.md").write_text("# Other\n", encoding="utf-8")
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    validation = re.search(r"^validation:\n(?:  .*\n)+", text, re.MULTILINE)
    assert validation is not None
    own = f"site_name: two pages\ndocs_dir: docs\nplugins: []\n{validation[0]}"
    (tmp_path / "mkdocs.yml").write_text(own, encoding="utf-8")
    done = built(tmp_path / "site", "--config-file", str(tmp_path / "mkdocs.yml"))
    assert done.returncode != 0
    assert "nowhere" in done.stderr


def test_what_a_page_loads_from_another_host_is_found(tmp_path: Path) -> None:
    other_hosts = load("other_hosts").other_hosts
    (tmp_path / "good.html").write_text(
        '<link rel="canonical" href="https://a.org"><a href="https://a.org">x</a><script src="a.js"></script>',
        encoding="utf-8",
    )
    (tmp_path / "good.css").write_text("a { background: url(data:image/png;base64,AA==) }", encoding="utf-8")
    assert other_hosts(tmp_path) == []
    (tmp_path / "bad.html").write_text('<script src="https://b.org/x.js"></script><img src="//b.org/y">', "utf-8")
    (tmp_path / "bad.css").write_text("@font-face { src: url('https://b.org/f.woff2') }", encoding="utf-8")
    found = other_hosts(tmp_path)
    assert [line.partition(": ")[2] for line in found] == ["https://b.org/x.js", "//b.org/y", "https://b.org/f.woff2"]


def test_the_picture_of_the_readme_loads_nothing() -> None:
    picture = (ROOT / "docs" / "assets" / "first-answer.svg").read_text(encoding="utf-8")
    assert re.findall(r"https?://(?!www\.w3\.org/)\S+", picture) == []
