"""Where targets became a table before the loss."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

from steadytrain.survey.calls import Calls  # noqa: E402


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_the_line_is_named_where_a_vector_met_a_column() -> None:
    calls = Calls()
    calls.look(True)
    try:
        rewards, values, output = torch.randn(8), torch.randn(8, 1), torch.randn(8, 1, requires_grad=True)
        targets = rewards + 0.9 * values
        functional.mse_loss(output, targets)
        functional.mse_loss(output, torch.randn(8, 8))
    finally:
        calls.look(False)
    made, given = calls.seen.broadcast
    assert "[8, 1] with [8, 8], a table since [8] met [8, 1] at test_outer_tables.py:" in made
    assert made.endswith("targets = rewards + 0.9 * values")
    assert given.endswith("[8, 1] with [8, 8]")
