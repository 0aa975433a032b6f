"""Find the causes and make their pages.

The causes are the plug-ins of ``steadytrain.diagnosis.causes``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from steadytrain.core.plugin_pages import Page, Pages, indented, wrapped
from steadytrain.core.plugins import Broken, Kind, kebab, name_of
from steadytrain.diagnosis.axis import axis_of
from steadytrain.diagnosis.cause import Cause, Intervention
from steadytrain.experiments.specs import axis_word
from steadytrain.experiments.trial import AXES

PROMISED = ("base_rate", "expects", "interventions", "grade", "source")


def _lacks(cls: type[Cause]) -> str | None:
    lacking = [name for name in PROMISED if not hasattr(cls, name)]
    if lacking:
        return f"it does not say {', '.join(lacking)}"
    return f"no axis is called {cls.axis}" if cls.axis and cls.axis not in AXES else None


CAUSES = Kind("cause", Cause, "steadytrain.diagnosis.causes", "steadytrain.causes", lacks=_lacks)


RUNGS = range(1, 8)


def _lacks_sense(found: Intervention) -> str | None:
    if found.rung not in RUNGS:
        return f"its rung is {found.rung}, and rungs go from {RUNGS[0]} to {RUNGS[-1]}"
    return None if found.mends else "it does not say which causes it mends"


def _listed() -> Iterable[Intervention]:
    """The interventions that the shipped causes list, reversed: of several with one name, the first listed counts."""
    return (one for cause in reversed(tuple(shipped().values())) for one in reversed(cause.interventions))


INTERVENTIONS = Kind(
    "intervention",
    Intervention,
    "",
    "steadytrain.interventions",
    lacks=_lacks_sense,
    tables="steadytrain.diagnosis.interventions",
    listed=_listed,
)


def _traits(cause: Cause) -> dict[str, Any]:
    return {
        "kind": "cause",
        "axis": axis_of(cause),
        "rivals": list(rivals_of(name_of(cause), causes())),
        "confirmed_by": list(cause.confirming),
        "spared": list(cause.spared),
        "interventions": [
            {"name": one.name, "rung": one.rung, "what": one.what, "trial": one.trial}
            for one in interventions_of(name_of(cause), cause)
        ],
        "grade": cause.grade,
        "source": cause.source,
    }


NO_TRIAL = "the survey itself measures the proof; no trial mends it, so otherwise it is likely at best"


def _spared(trials: Sequence[str]) -> str:
    """That these trials do not remove the symptom."""
    *others, last = trials
    return f"neither {', '.join(others)} nor {last} does" if others else f"{last} does not"


def _closing(page: Page) -> list[str]:
    traits = page.traits
    proof = f"{' or '.join(traits['confirmed_by'])} removes the symptom"
    proof += f", and {_spared(traits['spared'])}." if traits["spared"] else "."
    proof = proof if traits["confirmed_by"] else f"{NO_TRIAL}."
    mends = [
        f"- {one['what']}" + (f" (trial {one['trial']})" if one["trial"] else "") for one in traits["interventions"]
    ]
    parts = {
        "Axis": wrapped(f"{axis_word(traits['axis'])}: {AXES[traits['axis']]}."),
        "Looks like": wrapped(", ".join(traits["rivals"])),
        "Confirmed if": wrapped(proof),
        "Interventions": "\n".join(mends),
        "Evidence": wrapped(f"Grade {traits['grade']}: {traits['source']}."),
    }
    return [f"{title}:\n{indented(text)}" for title, text in parts.items() if text]


def _markdown_closing(page: Page) -> list[str]:
    traits = page.traits
    here = [rival for rival in traits["rivals"] if rival in shipped()]
    links = ", ".join(f"[{rival}](#{rival})" for rival in here) or "nothing else"
    confirmed = " or ".join(f"`{trial}`" for trial in traits["confirmed_by"])
    spared = f", and {_spared([f'`{trial}`' for trial in traits['spared']])}" if traits["spared"] else ""
    proof = f"Confirmed if {confirmed} removes it{spared}" if confirmed else f"Confirmed if {NO_TRIAL}"
    rows = [
        f"| {one['rung']} | {one['what']} | {'`' + one['trial'] + '`' if one['trial'] else ''} |"
        for one in traits["interventions"]
    ]
    return [
        "### Proof and rivals",
        f"On the axis {axis_word(traits['axis'])}. Looks like {links}. {proof}.",
        "### Interventions",
        "\n".join(["| rung | | trial |", "|---|---|---|", *rows]),
        f"Evidence {traits['grade']}: {traits['source']}.",
    ]


CAUSE_PAGES = Pages(
    kind=CAUSES,
    noun="cause",
    key="causes",
    heading="Causes",
    schema="steadytrain.explanation/1",
    document=(
        *(
            "kind",
            "name",
            "summary",
            "means",
            "causes",
            "next",
            "axis",
            "rivals",
            "confirmed_by",
            "spared",
            "interventions",
        ),
        *("grade", "source"),
    ),
    traits=_traits,
    closing=_closing,
    title="Causes",
    intro="Why runs go wrong. `steadytrain diagnose` ranks these causes, tests them and reports "
    "the answer;\n"
    "`steadytrain explain NAME` prints one in a terminal. Rungs of interventions go from 1, "
    "fast, to 7, invasive.\n\n"
    "Grades of evidence: A seen by several groups, or provable; B one solid paper or report with interventions;\n"
    "C a single report; D folklore.",
    markdown_closing=_markdown_closing,
)


def _mended(name: str) -> list[dict[str, Any]]:
    """The causes that have an intervention of this name, with its rung and details for each."""
    return [
        {"cause": cause, "rung": one.rung, "what": one.what, "trial": one.trial}
        for cause, made in causes().items()
        for one in interventions_of(cause, made)
        if one.name == name
    ]


def _mending(page: Page) -> list[str]:
    return [
        "\n".join(
            [
                "Mends:",
                *(
                    f"- {one['cause']}: {one['what']} (rung {one['rung']}"
                    + (f", trial {one['trial']})" if one["trial"] else ", by hand)")
                    for one in page.traits["mends"]
                ),
            ]
        )
    ]


INTERVENTION_PAGES = Pages(
    kind=INTERVENTIONS,
    noun="intervention",
    key="interventions",
    heading="Interventions",
    schema="steadytrain.intervention-explanation/1",
    document=("kind", "name", "summary", "mends"),
    traits=lambda one: {"kind": "intervention", "mends": _mended(one.name)},
    closing=_mending,
    headings=(),
    thresholds=False,
    title="Interventions",
    intro="Fixes by name (`diagnose.md`). Rungs go from 1, fast, to 7, invasive.\n"
    "`steadytrain explain NAME` prints the same in a terminal; `steadytrain verify --with NAME` tries one that has a\n"
    "trial.",
    markdown_closing=_mending,
)


@cache
def causes() -> Mapping[str, Cause]:
    """Every usable cause by name: the shipped ones in order, then those of other packages."""
    return {**shipped(), **{kebab(cls): cls() for cls in CAUSES.outside()}}


def broken() -> tuple[Broken, ...]:
    """The causes and interventions of other packages that cannot be used."""
    return (*CAUSES.broken(), *INTERVENTIONS.broken())


@cache
def shipped() -> Mapping[str, Cause]:
    """The shipped causes by name."""
    return {kebab(cls): cls() for cls in CAUSES.shipped()}


def rivals_of(name: str, known: Mapping[str, Cause]) -> tuple[str, ...]:
    """The rivals of a cause: those that it declares, then those of ``known`` that declare it."""
    declared = known[name].rivals
    return (*declared, *(other for other, one in known.items() if name in one.rivals and other not in declared))


def interventions_of(name: str, cause: Cause | type[Cause]) -> tuple[Intervention, ...]:
    """The interventions for a cause: its own, then those from elsewhere that name it in ``mends``."""
    own = {one.name for one in cause.interventions}
    return (*cause.interventions, *(one for one in added_interventions() if name in one.mends and one.name not in own))


@cache
def added_interventions() -> tuple[Intervention, ...]:
    """The interventions that no cause lists."""
    return INTERVENTIONS.made()
