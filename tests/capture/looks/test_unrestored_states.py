"""States that are saved and never read back, read in the source."""

from __future__ import annotations

import textwrap

import pytest

from steadytrain.capture.looks.script_reading import mistakes

RULE = "unrestored-state"
SICK = {
    "a schedule": """
        torch.save({"model": m.state_dict(), "opt": o.state_dict(), "sched": s.state_dict()}, path)
        ck = torch.load(path)
        m.load_state_dict(ck["model"])
        o.load_state_dict(ck["opt"])
        """,
    "a generator, by keywords": """
        torch.save(dict(net=m.state_dict(), optimizer=o.state_dict(), gen=g.get_state()), path)
        ck = torch.load(path)
        m.load_state_dict(ck["net"])
        o.load_state_dict(ck["optimizer"])
        """,
}
HEALTHY = {
    "all are read": """
        torch.save({"model": m.state_dict(), "opt": o.state_dict(), "sched": s.state_dict()}, path)
        ck = torch.load(path)
        m.load_state_dict(ck["model"])
        o.load_state_dict(ck["opt"])
        if "sched" in ck:
            s.load_state_dict(ck["sched"])
        """,
    "in a loop": """
        torch.save({"model": m.state_dict(), "opt": o.state_dict(), "sched": s.state_dict()}, path)
        for name, one in zip(("model", "opt", "sched"), (m, o, s)):
            one.load_state_dict(ck[name])
        """,
    "only the weights, to begin another training": """
        torch.save({"model": m.state_dict(), "opt": o.state_dict(), "sched": s.state_dict()}, path)
        m.load_state_dict(torch.load(path)["model"])
        """,
}


def found(source: str) -> set[str]:
    return {rule for rule, _ in mistakes(textwrap.dedent(source), {}) if rule == RULE}


@pytest.mark.parametrize("source", SICK.values(), ids=SICK)
def test_the_mistake(source: str) -> None:
    assert found(source) == {RULE}


@pytest.mark.parametrize("source", HEALTHY.values(), ids=HEALTHY)
def test_what_resembles_it(source: str) -> None:
    assert found(source) == set()
