from __future__ import annotations

import pytest
import torch
from torch import nn

from steadytrain.statistics.bias_names import weight_beside


@pytest.mark.parametrize(
    "wrap",
    [
        lambda layer: layer,
        torch.nn.utils.parametrizations.spectral_norm,
        torch.nn.utils.parametrizations.weight_norm,
        torch.nn.utils.spectral_norm,
    ],
    ids=["plain", "spectral norm", "weight norm", "older spectral norm"],
)
def test_the_weight_of_a_bias_is_found_however_it_is_normalised(wrap) -> None:
    names = [name for name, _ in nn.Sequential(nn.Linear(2, 3), wrap(nn.Linear(3, 1))).named_parameters()]
    found = weight_beside("1.bias", names)
    assert found in names
    assert found is not None
    assert found.startswith("1.")
    assert "weight" in found


def test_those_of_a_recurrent_layer_and_none() -> None:
    names = [name for name, _ in nn.LSTM(2, 3).named_parameters()]
    assert weight_beside("bias_hh_l0", names) == "weight_hh_l0"
    assert weight_beside("head.bias", names) is None
    assert weight_beside("weight_hh_l0", names) is None
