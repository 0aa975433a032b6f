"""The scripts of ``zoo/curves``, run for real under watch: the faulty raise what they must, the healthy nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from zoo_cases import check, check_listed, differences, parameters, watched


@pytest.mark.long
@pytest.mark.parametrize("case", parameters("curves"))
def test_the_zoo(case: dict[str, Any], tmp_path: Path) -> None:
    check(case, watched("curves", case["script"], tmp_path))


def test_the_zoo_lists_every_script() -> None:
    check_listed("curves")


def test_differences() -> None:
    spike = {"name": "loss-spike", "severity": "warning", "first_step": 900}
    expected = {"name": "loss-spike", "severity": "warning", "first_step": [890, 900]}
    assert differences([], []) == []
    assert differences([expected], [spike]) == []
    assert len(differences([expected], [])) == 1
    assert len(differences([], [spike])) == 1
    assert len(differences([expected], [{**spike, "first_step": 901}])) == 2
    assert len(differences([expected], [{**spike, "severity": "critical"}])) == 2
    assert len(differences([expected], [spike, {**spike, "first_step": 950}])) == 1


def test_differences_with_what_may_come_beside() -> None:
    expected = {"name": "dead-units", "severity": "critical", "first_step": [300, 320]}
    dead = {"name": "dead-units", "severity": "critical", "first_step": 304}
    later = {"name": "divergence", "severity": "critical", "first_step": 310}
    assert differences([expected], [dead, later], beside=["divergence"]) == []
    assert differences([expected], [dead], beside=["divergence"]) == []
    assert len(differences([expected], [dead, later], beside=["loss-spike"])) == 1
    assert len(differences([expected], [dead, {**later, "first_step": 200}], beside=["divergence"])) == 1
    assert len(differences([], [later], beside=[])) == 1
