"""A loss that is summed on purpose is compared with a guess by target."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from check_outcomes import outcome  # noqa: E402
from healthy_models import given  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402


def pixels(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    inputs, targets = batch
    return functional.binary_cross_entropy_with_logits(model(inputs), targets, reduction="sum") / len(inputs)


@pytest.mark.parametrize(("scale", "status"), [(0.01, "pass"), (60.0, "fail")])
def test_a_sum_over_pixels_costs_what_a_guess_of_each_costs(scale: float, status: str) -> None:
    torch.manual_seed(0)
    model = nn.Linear(16, 144)
    with torch.no_grad():
        model.weight.mul_(scale)
    batches = [(torch.randn(8, 16), (torch.rand(8, 144) > 0.5).float()) for _ in range(3)]
    found = outcome("initial-loss", given(model, batches, pixels))
    assert found.status == status, found.message
    assert "ln 2" in found.message
