"""A batch that the model got bad: whether the data held it is said only where that is known."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import builders
from steadytrain.capture.incident.message import finding_lines
from steadytrain.core.incident import Finding, Samples
from steadytrain.report.next_commands import of_incident

WHY = "the batch already holds NaN: args[0], 16 of 64 values, first at [1, 0], {}; it reached the loss"
HALF = Finding(None, WHY.format("when the model got it"))
WHOLE = Finding(None, WHY.format("no operation of the step made it"))
LOADED = Samples(0, "train", (4, 9), nonfinite_rows=(1,))
LATER = Samples(0, "train", (4, 9), later_rows=(1,))


@pytest.mark.parametrize(
    ("finding", "samples", "half"),
    [
        (HALF, (), True),
        (HALF, (LATER,), True),
        (HALF, (LOADED,), False),
        (WHOLE, (), False),
        (Finding(builders.located(), HALF.why), (), False),
        (Finding(None, "the parameter already holds NaN: weight"), (), False),
    ],
    ids=["no loader", "after the loader", "loaded so", "traced", "named", "a weight"],
)
def test_what_made_a_bad_batch_is_open_until_it_was_traced_or_loaded_so(
    finding: Finding, samples: tuple[Samples, ...], half: bool
) -> None:
    assert finding.is_half_traced(samples) is half
    said = "\n".join(finding_lines(finding, samples))
    assert ("not traced yet, `steadytrain locate` looks for it" in said) is half
    incident = builders.incident(finding=finding, samples=samples)
    commands = [one.line for one in of_incident(incident, Path("runs/a/step-000412"), None)]
    assert any("steadytrain locate" in line for line in commands) is half
