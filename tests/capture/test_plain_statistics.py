"""Modules whose mean and spread no checkpoint holds."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from steadytrain.capture.snapshots.stateful_objects import plain_statistics  # noqa: E402


def module(**tensors: object) -> nn.Module:
    one = nn.Identity()
    for name, value in tensors.items():
        setattr(one, name, value)
    return one


ZEROS, ONES = torch.zeros(3, 1), torch.ones(3, 1)


@pytest.mark.parametrize(
    ("tensors", "found"),
    [
        ({"mean": ZEROS, "std": ONES}, ["0 Identity"]),
        ({"x_mu": ZEROS, "mean": ZEROS, "sigma": ONES}, ["0 Identity"]),
        ({"mean": torch.tensor([0.485, 0.456, 0.406]), "std": torch.tensor([0.229, 0.224, 0.225])}, []),
        ({"mean": ZEROS, "std": 2.0 * ONES}, []),
        ({"mean": ZEROS}, []),
        ({"places": ZEROS, "weights": ONES}, []),
        ({"mean": nn.Parameter(ZEROS), "std": nn.Parameter(ONES)}, []),
    ],
)
def test_a_fresh_mean_and_spread_that_are_plain_tensors(tensors: dict[str, object], found: list[str]) -> None:
    model = nn.Sequential(module(**tensors), nn.Linear(3, 3))
    assert list(plain_statistics([model])) == found


def test_buffers_are_in_the_checkpoint() -> None:
    model = nn.Identity()
    model.register_buffer("mean", ZEROS)
    model.register_buffer("std", ONES)
    assert list(plain_statistics([model])) == []
