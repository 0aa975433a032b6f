"""What locate keeps beside the operation: through JSON and back, in a bundle, and as lines for a person."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

import builders
from steadytrain.core.errors import UsageError
from steadytrain.report.look import look_facts, shown_rungs
from steadytrain.storage.bundle import open_bundle
from steadytrain.storage.step_look import (
    LOOK_FILE,
    ActivationMaxima,
    BackendRow,
    Backends,
    ModuleMaximum,
    SecondOpinion,
    StepLook,
    keep_look,
    read_look,
)


def rung(module: str, *largest: float | None, dtype: str = "float16", limit: float = 65504.0) -> ModuleMaximum:
    return ModuleMaximum(module, "Linear", dtype, limit, largest)


LADDER = ActivationMaxima(
    (5, 6, 7),
    (
        rung("embed", 2.0, 2.0, 2.0),
        rung("blocks.2", 100.0, 120.0, 150.0),
        rung("blocks.3.wi", 9.0, 9.5, 10.0),
        rung("blocks.3.wo", 3.1e4, 5.9e4, math.inf),
        rung("blocks.3", 3.1e4, 5.9e4, math.inf),
        rung("head", None, 1.0, math.nan),
        rung("bias", 0.0, 0.0, 0.0),
    ),
)
LOOK = StepLook(
    step=7,
    ladder=LADDER,
    opinion=SecondOpinion("number-format", math.inf, 12.5, 4, 0, ("custom.kernel",), ""),
    backends=Backends(
        (
            BackendRow("eager", 1.25, 3.5, 0, None),
            BackendRow("inductor", math.nan, math.nan, 4, "output 0 of graph 0 (torch.log): not finite: 3 are NaN"),
            BackendRow("aot_eager", None, None, 0, None, "RuntimeError: no"),
        ),
        "inductor",
        True,
        "compiled-only: finite in eager, not finite with inductor",
        ("a note",),
    ),
    notes=("another note",),
)


def test_it_goes_through_strict_json_and_back() -> None:
    text = json.dumps(LOOK.to_json(), allow_nan=False)
    again = StepLook.from_json(json.loads(text))
    assert again.to_json() == LOOK.to_json()
    assert again.ladder is not None
    assert [str(value) for value in again.ladder.rungs[5].largest] == ["None", "1.0", "nan"]
    empty = StepLook(3)
    assert StepLook.from_json(json.loads(json.dumps(empty.to_json()))) == empty


def test_headroom_is_that_of_the_last_finite_value() -> None:
    wo = LADDER.rungs[3]
    assert wo.headroom_bits == pytest.approx(math.log2(65504 / 5.9e4))
    assert (wo.broke, LADDER.rungs[0].broke, LADDER.rungs[6].headroom_bits) == (True, False, None)


def test_shown_are_the_rungs_around_the_first_that_broke_and_those_near_the_limit() -> None:
    assert [rung.module for rung in shown_rungs(LADDER)] == [
        "embed",
        "blocks.2",
        "blocks.3.wi",
        "blocks.3.wo",
        "blocks.3",
    ]
    healthy = ActivationMaxima((1,), (rung("a", 1.0), rung("b", 3e4), rung("c", 10.0)))
    assert [rung.module for rung in shown_rungs(healthy)] == ["b"]
    many = ActivationMaxima((1,), tuple(rung(f"layer.{number}", 6e4) for number in range(100)))
    assert len(shown_rungs(many)) == 10


def test_its_lines_say_growth_against_the_limit_and_who_is_to_blame() -> None:
    lines = [f"{fact.label}|{fact.value}" for fact in look_facts(LOOK)]
    assert "in float64|finite in float64: the number format is at fault" in lines
    assert "|loss inf, in float64 12.5" in lines
    assert "|taken as the run made them: custom.kernel" in lines
    assert any(
        "blocks.3.wo  float16 3.1e+04 -> 5.9e+04 -> inf, limit 65504, 0.2 binary digits left" in line for line in lines
    )
    assert any(line.startswith("compiled|compiled-only") for line in lines)
    assert any("inductor" in line and "nan" in line and "torch.log" in line for line in lines)
    assert any("RuntimeError: no" in line for line in lines)


def test_a_bundle_keeps_the_newest_and_is_whole_afterwards(tmp_path: Path) -> None:
    bundle = builders.write_bundle(tmp_path / "bundle")
    assert read_look(bundle) is None
    keep_look(bundle, StepLook(3))
    keep_look(bundle, LOOK)
    assert open_bundle(bundle).path == bundle
    read = read_look(bundle)
    assert read is not None
    assert read.to_json() == LOOK.to_json()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"format": "steadytrain.step-look", "version": 2}',
        '{"format": "steadytrain.step-look", "version": 1}',
    ],
)
def test_a_damaged_one_is_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / LOOK_FILE).write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match="makes it again"):
        read_look(tmp_path)
