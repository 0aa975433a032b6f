"""The two tests of a rule that reads a source: it finds each mistake, and nothing in what resembles one."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping

import pytest

from steadytrain.capture.looks.script_reading import mistakes

Judged = Callable[[str], None]


def cases_of(rule: str, sick: Mapping[str, str], healthy: Mapping[str, str]) -> tuple[Judged, Judged]:
    """Tests of ``rule`` on sources by name, to be bound to names that begin with ``test_``."""

    def found(source: str) -> set[str]:
        return {one for one, _ in mistakes(textwrap.dedent(source), {}) if one == rule}

    @pytest.mark.parametrize("source", sick.values(), ids=list(sick))
    def finds(source: str) -> None:
        assert found(source) == {rule}

    @pytest.mark.parametrize("source", healthy.values(), ids=list(healthy))
    def leaves(source: str) -> None:
        assert found(source) == set()

    return finds, leaves
