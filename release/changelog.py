"""Checks that CHANGELOG.md has the form of Keep a Changelog 1.1.0, and finds the newest version in it."""

from __future__ import annotations

import re
from dataclasses import dataclass

TITLE = "# Changelog"
GROUPS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
UNRELEASED = "Unreleased"

_VERSION = re.compile(r"## \[(?P<name>[^\]]+)\](?: - (?P<date>\S+))?(?: \[YANKED\])?")
_DATE = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])")
_NUMBER = re.compile(r"\d+\.\d+\.\d+([-.]?(a|b|rc|dev|post)[-.]?\d+)?")


@dataclass(frozen=True)
class Changelog:
    """``versions`` are the released ones, the newest first; ``has_unreleased``: there is a section for what is next."""

    versions: tuple[str, ...]
    has_unreleased: bool
    problems: tuple[str, ...]


def read(text: str) -> Changelog:
    """The sections of a changelog, with one line for each thing that is not in the form."""
    lines = text.splitlines()
    problems = [] if lines and lines[0] == TITLE else [f"line 1: must be {TITLE!r}"]
    versions: list[str] = []
    groups: list[str] = []
    unreleased = False
    for number, line in enumerate(lines, start=1):
        if line.startswith("## "):
            groups = []
            name, problem = _version(line, versions, unreleased)
            problems += [f"line {number}: {problem}"] if problem else []
            unreleased = unreleased or name == UNRELEASED
            versions += [name] if name not in (None, UNRELEASED) else []
        elif line.startswith("### "):
            problems += [f"line {number}: {why}" for why in _group(line[4:], groups)]
            groups.append(line[4:])
        elif line.startswith("- ") and not groups:
            problems.append(f"line {number}: an entry must stand under one of {', '.join(GROUPS)}")
    if not versions and not unreleased:
        problems.append(f"no version, and no [{UNRELEASED}]")
    return Changelog(tuple(versions), unreleased, tuple(problems))


def _version(line: str, before: list[str], unreleased: bool) -> tuple[str | None, str | None]:
    """The name in a heading of a version, and what is wrong with the heading."""
    found = _VERSION.fullmatch(line)
    if found is None:
        return None, f"{line!r}: must be ## [VERSION] - YYYY-MM-DD, or ## [{UNRELEASED}]"
    name, date = found["name"], found["date"]
    if name == UNRELEASED:
        return name, f"[{UNRELEASED}] must come first, once, without a date" if date or before or unreleased else None
    if not _NUMBER.fullmatch(name):
        return name, f"[{name}]: not a version of the form 1.2.3"
    if date is None or not _DATE.fullmatch(date):
        return name, f"[{name}]: needs its date, as YYYY-MM-DD"
    if before and _order(name) >= _order(before[-1]):
        return name, f"[{name}] must not stand below [{before[-1]}]: the newest comes first"
    return name, None


def _group(name: str, before: list[str]) -> list[str]:
    if name not in GROUPS:
        return [f"{name!r}: the groups of a version are {', '.join(GROUPS)}"]
    return [f"{name!r} stands twice in one version"] if name in before else []


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
