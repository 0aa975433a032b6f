"""Finds the symptom detectors, and tells what each is for.

A detector is found because its file lies in ``steadytrain.symptoms``, or because an installed distribution names it
under the entry-point group of the same name; nothing registers itself. Its name is its class name in kebab case, and
its documentation is its docstring with the values of its fields. Not here: running a detector.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import steadytrain.symptoms
from steadytrain.errors import UsageError
from steadytrain.symptoms import Detector

GROUP = "steadytrain.symptoms"
ENTRY_POINTS_MAX = 256
SECTIONS = ("Means", "Causes", "Next")


@dataclass(frozen=True)
class Broken:
    """A third-party detector that could not be used: where it was said to be, and why not."""

    entry_point: str
    why: str


@dataclass(frozen=True)
class Threshold:
    """A field of a detector: its default, and where that number comes from."""

    name: str
    value: Any
    about: str


@dataclass(frozen=True)
class Explanation:
    """What a detector's docstring and fields say. A section that a third-party docstring lacks is empty."""

    name: str
    summary: str
    means: str
    causes: str
    next: str
    thresholds: tuple[Threshold, ...]
    needs: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": "steadytrain.explanation/1",
            "name": self.name,
            "summary": self.summary,
            "means": self.means,
            "causes": self.causes,
            "next": self.next,
            "thresholds": [
                {"name": threshold.name, "value": threshold.value, "about": threshold.about}
                for threshold in self.thresholds
            ],
            "needs": list(self.needs),
        }


def detectors() -> tuple[Detector, ...]:
    """Every usable detector with its default thresholds: the shipped ones by name, then those of other packages."""
    return (*_shipped(), *_third_party()[0])


def broken() -> tuple[Broken, ...]:
    """The detectors of other packages that :func:`detectors` left out."""
    return _third_party()[1]


def detector_name(cls: type[Detector]) -> str:
    """The kebab name that every place derives: ``LossSpike`` is ``loss-spike`` in ``symptoms/loss_spike.py``."""
    return kebab(cls)


def kebab(cls: type) -> str:
    """The name of a plug-in by its class."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", cls.__name__).lower()


def explanations() -> tuple[Explanation, ...]:
    """The explanation of every usable detector."""
    return tuple(explanation_of(detector) for detector in detectors())


def explanation(name: str) -> Explanation:
    """The explanation of the detector called ``name``.

    Raises:
        UsageError: there is none of that name; the message lists those that are near.
    """
    known = {entry.name: entry for entry in explanations()}
    if name in known:
        return known[name]
    wanted = name.lower().replace("_", "-")
    near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5) or [other for other in known if wanted in other]
    hint = f"did you mean {' or '.join(near)}?" if near else f"one of {', '.join(known)}"
    raise UsageError(f"nothing is called {name!r}; {hint} (`steadytrain explain` lists all)")


def explain(name: str) -> str:
    """Plain text for a terminal: the docstring of ``name`` and its thresholds with their values.

    Raises:
        UsageError: there is none of that name; the message lists those that are near.
    """
    found = explanation(name)
    parts = [f"{found.name}: {found.summary}"]
    for title, text in _sections(found):
        parts.append(f"{title}:\n{indented(text)}")
    if found.thresholds:
        lines = [indented(_wrap(f"{t.name} = {t.value}: {t.about}.")) for t in found.thresholds]
        parts.append("Thresholds:\n" + "\n".join(lines))
    if found.needs:
        parts.append(f"Reads: {', '.join(found.needs)}")
    return "\n\n".join(parts) + "\n"


def catalog_page() -> str:
    """The page ``docs/symptoms.md``: every shipped detector, in Markdown."""
    entries = [explanation_of(detector) for detector in _shipped()]
    lines = [
        "<!-- Generated from the detectors' docstrings. To write it anew:",
        "python -c 'from steadytrain.catalog import catalog_page; print(catalog_page(), end=\"\")' > docs/symptoms.md",
        "-->",
        "",
        "# Symptoms",
        "",
        "What steadytrain looks for in a run. `steadytrain explain NAME` prints the same in a terminal.",
        "",
        "| symptom | |",
        "|---|---|",
        *(f"| [{entry.name}](#{entry.name}) | {entry.summary} |" for entry in entries),
    ]
    for entry in entries:
        lines += ["", f"## {entry.name}", "", entry.summary]
        for title, text in _sections(entry):
            lines += ["", f"### {title}", "", text]
        lines += ["", "### Thresholds", "", "| field | default | |", "|---|---|---|"]
        lines += [f"| `{t.name}` | {t.value} | {t.about}. |" for t in entry.thresholds]
        lines += ["", f"Reads: {', '.join(f'`{signal}`' for signal in entry.needs)}."]
    return "\n".join(lines) + "\n"


def explanation_of(detector: Detector) -> Explanation:
    """The explanation of one detector, with the values that it has."""
    summary, sections = split_docstring(inspect.cleandoc(type(detector).__doc__ or ""))
    return Explanation(
        name=detector_name(type(detector)),
        summary=summary,
        means=sections.get("Means", ""),
        causes=sections.get("Causes", ""),
        next=sections.get("Next", ""),
        thresholds=tuple(
            Threshold(field.name, getattr(detector, field.name), str(field.metadata.get("about", "not documented")))
            for field in fields(detector)
        ),
        needs=tuple(detector.needs),
    )


# Finding.


def _shipped() -> tuple[Detector, ...]:
    return tuple(_detector_of(name) for name in _module_names())


def _module_names() -> list[str]:
    names = (module.name for module in pkgutil.iter_modules(steadytrain.symptoms.__path__))
    return sorted(name for name in names if not name.startswith("_"))


def _detector_of(module_name: str) -> Detector:
    """The detector of one file of ours. That a file holds exactly one, of the right name, is our own promise."""
    module = importlib.import_module(f"{steadytrain.symptoms.__name__}.{module_name}")
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Detector) and value.__module__ == module.__name__
    ]
    assert len(classes) == 1, f"{module.__name__} holds {len(classes)} detectors; one file, one detector"
    (cls,) = classes
    expected = module_name.replace("_", "-")
    assert detector_name(cls) == expected, f"{cls.__name__} in {module_name}.py is not called {expected}"
    return cls()


def _third_party() -> tuple[tuple[Detector, ...], tuple[Broken, ...]]:
    taken = {name.replace("_", "-") for name in _module_names()}
    found: list[Detector] = []
    failed: list[Broken] = []
    declared = sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value))
    for entry_point in declared[:ENTRY_POINTS_MAX]:
        outcome = _load(entry_point, taken)
        if isinstance(outcome, Broken):
            failed.append(outcome)
        else:
            taken.add(detector_name(type(outcome)))
            found.append(outcome)
    return tuple(found), tuple(failed)


def _load(entry_point: EntryPoint, taken: set[str]) -> Detector | Broken:
    where = f"{entry_point.name} = {entry_point.value}"
    try:
        cls = entry_point.load()
        if not (isinstance(cls, type) and issubclass(cls, Detector)):
            return Broken(where, f"{cls!r} is not a subclass of steadytrain.symptoms.Detector")
        missing = [f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING]
        if missing:
            return Broken(where, f"fields without a default: {', '.join(missing)}")
        name = detector_name(cls)
        if name in taken:
            return Broken(where, f"the name {name} is taken")
        return cls()
    except Exception as error:  # whatever another package's import does, it must not cost the run its other detectors
        return Broken(where, f"{type(error).__name__}: {error}")


# The docstring as parts.


def split_docstring(text: str) -> tuple[str, dict[str, str]]:
    """First sentence and sections of a cleaned docstring. A section is a heading with a colon over indented lines."""
    paragraphs: dict[str, list[str]] = {"": []}
    current = ""
    for line in text.splitlines():
        heading = line.rstrip().removesuffix(":")
        if heading in SECTIONS and line.rstrip().endswith(":"):
            current = heading
            paragraphs[current] = []
        else:
            paragraphs[current].append(line)
    summary = " ".join("\n".join(paragraphs.pop("")).split("\n\n")[0].split())
    return summary, {title: inspect.cleandoc("\n" + "\n".join(lines)) for title, lines in paragraphs.items()}


def _sections(entry: Explanation) -> Iterator[tuple[str, str]]:
    texts = (entry.means, entry.causes, entry.next)
    return ((title, text) for title, text in zip(SECTIONS, texts, strict=True) if text)


def indented(text: str) -> str:
    """``text`` two spaces to the right."""
    return "\n".join(f"  {line}".rstrip() for line in text.splitlines())


def _wrap(text: str) -> str:
    return textwrap.fill(text, width=110, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
