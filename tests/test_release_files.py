"""What a release consists of besides the package: versions, changelog, citation, security page, container files."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from steadytrain.cli.main import commands
from steadytrain.core.version import __version__

ROOT = Path(__file__).parents[1]


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def changelog() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release_changelog", ROOT / "release" / "changelog.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


def test_the_version_is_the_same_everywhere() -> None:
    found = {
        name: re.search(r'^version(?: =|:) "?([\d.]+)"?$', text(name), re.M)
        for name in ("pyproject.toml", "CITATION.cff")
    }
    assert {name: match and match[1] for name, match in found.items()} == dict.fromkeys(found, __version__)


def test_the_changelog_keeps_the_form(changelog: ModuleType) -> None:
    found = changelog.read(text("CHANGELOG.md"))
    assert found.problems == ()
    assert not found.versions or found.has_unreleased or found.versions[0] == __version__


GOOD = "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-12-01\n\n### Added\n\n- One.\n\n## [0.1.0] - 2026-11-01\n"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("# Changelog", "# Changes", "line 1: must be '# Changelog'"),
        (" - 2026-12-01", "", "[0.2.0]: needs its date, as YYYY-MM-DD"),
        ("2026-12-01", "2026-13-01", "[0.2.0]: needs its date, as YYYY-MM-DD"),
        ("[0.2.0]", "0.2.0", "must be ## [VERSION] - YYYY-MM-DD"),
        ("[0.2.0]", "[next]", "[next]: not a version of the form 1.2.3"),
        ("0.2.0", "0.0.9", "[0.1.0] must not stand below [0.0.9]: the newest comes first"),
        ("### Added", "### News", "'News': the groups of a version are Added, Changed"),
        ("### Added\n", "### Added\n\n### Added\n", "'Added' stands twice in one version"),
        ("### Added\n", "", "an entry must stand under one of Added, Changed"),
        ("## [Unreleased]\n\n## [0.2.0] - 2026-12-01", "## [0.2.0] - 2026-12-01\n\n## [Unreleased]", "must come first"),
    ],
)
def test_a_changelog_of_another_form_is_named(old: str, new: str, problem: str, changelog: ModuleType) -> None:
    assert changelog.read(GOOD) == changelog.Changelog(("0.2.0", "0.1.0"), True, ())
    assert old in GOOD
    problems = changelog.read(GOOD.replace(old, new)).problems
    assert any(problem in one for one in problems), problems


def test_the_citation_has_what_the_format_asks_for() -> None:
    yaml = pytest.importorskip("yaml")
    cited = yaml.safe_load(text("CITATION.cff"))
    assert cited["cff-version"] == "1.2.0"
    assert {"message", "title", "authors", "type", "license", "version"} <= set(cited)
    assert cited["license"] == "Apache-2.0"
    assert all(set(author) <= {"name", "given-names", "family-names"} for author in cited["authors"])


def test_the_security_page_says_of_every_command_what_it_executes() -> None:
    table = text("SECURITY.md").split("## What each command executes")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`([a-z-]+)`", row)]
    assert sorted(named) == sorted(commands.list_commands(None))  # type: ignore[arg-type]


def test_commands_that_launch_are_in_the_rows_that_say_so() -> None:
    """What asks before it launches (``_consent``), or starts ``Diagnosing``, executes something; what runs no code must
    not."""
    table = text("SECURITY.md").split("## What each command executes")[1].split("\n## ")[0]
    harmless = {
        name
        for line in table.splitlines()
        if "| no code" in line
        for name in re.findall(r"`([a-z-]+)`", line.split("|")[1])
    }
    folder = ROOT / "src" / "steadytrain" / "cli"
    asking = {
        path.stem.replace("_", "-")
        for path in folder.glob("[a-z]*.py")
        if path.stem != "main" and re.search("_consent|Diagnosing", path.read_text(encoding="utf-8"))
    }
    assert asking
    assert not asking & harmless


def test_syntax_is_that_of_the_oldest_python() -> None:
    asked = re.search(r'^requires-python = ">=3\.(\d+)"', text("pyproject.toml"), re.M)
    target = re.search(r'^target-version = "py3(\d+)"', text("pyproject.toml"), re.M)
    assert asked is not None
    assert target is not None
    assert asked[1] == target[1]
    with pytest.raises(SyntaxError):
        ast.parse("try:\n    pass\nexcept* ValueError:\n    pass\n", feature_version=(3, int(asked[1])))
    for version in range(int(asked[1]), 14):
        assert f"Programming Language :: Python :: 3.{version}" in text("pyproject.toml")


def test_what_the_image_copies_is_there() -> None:
    image, ignored = text("Dockerfile"), text(".dockerignore")
    copied = [word for line in re.findall(r"^COPY (?!--)(.*)$", image, re.M) for word in line.split()[:-1]]
    assert {"pyproject.toml", "src", "constraints.txt"} <= set(copied)
    for name in copied:
        assert (ROOT / name).exists(), name
        assert f"!{name}" in ignored.splitlines(), name
    extras = re.search(r"steadytrain-\*\.whl\)\[([a-z,]+)\]", image)
    assert extras is not None
    for extra in extras[1].split(","):
        assert re.search(rf"^{extra} = \[", text("pyproject.toml"), re.M), extra
    assert 'ENTRYPOINT ["steadytrain"]' in image
    assert re.search(r'^steadytrain = "steadytrain.cli.main:entry"$', text("pyproject.toml"), re.M)
    build = re.search(r'requires = \["(.*)"\]', text("pyproject.toml"))
    assert build is not None
    assert f'"{build[1]}"' in image
    read_by_the_build = re.findall(r'^(?:readme|license-files) = \[?"(.*?)"', text("pyproject.toml"), re.M)
    assert set(read_by_the_build) <= set(copied)


def test_what_the_devcontainer_runs_is_there() -> None:
    container = json.loads(text(".devcontainer/devcontainer.json"))
    tool, target = container["postCreateCommand"].split()
    assert (tool, target) == ("make", ".venv/ready")
    assert re.search(r"^READY := \$\(VENV\)/ready$", text("Makefile"), re.M)
    assert re.search(r"^\$\(READY\):", text("Makefile"), re.M)
    assert container["image"].endswith(":3.11")


def test_the_release_check_is_a_target_of_make() -> None:
    lines = text("Makefile")
    assert re.search(r"^release-check:\n\t\$\(PYTHON\) (release/check\.py)", lines, re.M)
    assert (ROOT / "release" / "check.py").is_file()
