"""What optimizers remember of a parameter, whatever they call it."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from steadytrain.capture.tensors.optimizer_state import Moments, find_moments

SHAPE = (4, 3)


def stepped(name: str, steps: int = 3, **options: Any) -> tuple[torch.optim.Optimizer, nn.Parameter]:
    parameter = nn.Parameter(torch.randn(SHAPE, generator=torch.Generator().manual_seed(0)))
    optimizer: torch.optim.Optimizer = getattr(torch.optim, name)([parameter], **{"lr": 0.01, **options})
    for step in range(steps):
        parameter.grad = torch.randn(SHAPE, generator=torch.Generator().manual_seed(step))
        optimizer.step()
    return optimizer, parameter


def named(optimizer: torch.optim.Optimizer, parameter: Tensor, tensor: Tensor | None) -> str | None:
    """The name under which the optimizer keeps ``tensor``."""
    if tensor is None:
        return None
    state = optimizer.state[parameter]
    return next(
        key for key, value in state.items() if isinstance(value, Tensor) and value.data_ptr() == tensor.data_ptr()
    )


# optimizer, options -> first moment, second moment, epsilon, bias correction of the third step, whether the ratio holds
CASES: list[tuple[str, dict[str, Any], str | None, str | None, float | None, float, bool]] = [
    ("AdamW", {}, "exp_avg", "exp_avg_sq", 1e-8, 1 - 0.999**3, True),
    ("Adam", {"foreach": True, "eps": 1e-6}, "exp_avg", "exp_avg_sq", 1e-6, 1 - 0.999**3, True),
    ("Adam", {"fused": True, "betas": (0.8, 0.9)}, "exp_avg", "exp_avg_sq", 1e-8, 1 - 0.9**3, True),
    ("AdamW", {"amsgrad": True}, "exp_avg", "max_exp_avg_sq", 1e-8, 1 - 0.999**3, True),
    ("AdamW", {"fused": True, "amsgrad": True}, "exp_avg", "max_exp_avg_sq", 1e-8, 1 - 0.999**3, True),
    ("NAdam", {}, "exp_avg", "exp_avg_sq", 1e-8, 1 - 0.999**3, True),
    ("RAdam", {}, "exp_avg", "exp_avg_sq", 1e-8, 1 - 0.999**3, True),
    ("RMSprop", {}, None, "square_avg", 1e-8, 1.0, True),
    ("RMSprop", {"momentum": 0.9, "centered": True}, "momentum_buffer", "square_avg", 1e-8, 1.0, True),
    ("Adadelta", {}, None, "square_avg", 1e-6, 1.0, True),
    ("Adagrad", {}, None, "sum", 1e-10, 1.0, False),
    ("SGD", {}, None, None, None, 1.0, False),
    ("SGD", {"momentum": 0.9, "foreach": True}, "momentum_buffer", None, None, 1.0, False),
    ("Adamax", {}, "exp_avg", None, None, 1.0, False),
    ("Adafactor", {}, None, None, None, 1.0, False),
    ("ASGD", {}, None, None, None, 1.0, False),
    ("Rprop", {}, None, None, None, 1.0, False),
]


@pytest.mark.parametrize(("name", "options", "first", "second", "epsilon", "bias", "ratio"), CASES)
def test_optimizers_of_torch(
    name: str,
    options: dict[str, Any],
    first: str | None,
    second: str | None,
    epsilon: float | None,
    bias: float,
    ratio: bool,
) -> None:
    optimizer, parameter = stepped(name, **options)
    moments = find_moments(optimizer).moments.get(id(parameter), Moments())
    assert named(optimizer, parameter, moments.first) == first
    assert named(optimizer, parameter, moments.second) == second
    assert moments.epsilon == epsilon
    assert moments.ratio_is_defined is ratio
    assert moments.root_bias() == pytest.approx(math.sqrt(bias))


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("AdamW", {}, None),
        ("SGD", {"momentum": 0.9}, None),
        ("Rprop", {}, None),
        ("Adafactor", {}, "Adafactor keeps its second moment in factors"),
        ("Adamax", {}, "Adamax keeps a maximum of magnitudes instead"),
    ],
)
def test_what_is_left_out_is_named_once(name: str, options: dict[str, Any], words: str | None) -> None:
    parameters = [nn.Parameter(torch.ones(SHAPE)) for _ in range(3)]
    optimizer = getattr(torch.optim, name)(parameters, lr=0.01, **options)
    for parameter in parameters:
        parameter.grad = torch.ones(SHAPE)
    optimizer.step()
    notes = find_moments(optimizer).notes
    assert len(notes) == (words is not None)
    assert all(words in note for note in notes if words)


class Theirs(torch.optim.Optimizer):
    """Somebody's optimizer, with whatever state."""

    def __init__(self, parameter: nn.Parameter, state: dict[str, Any], **group: Any) -> None:
        super().__init__([parameter], group)
        self.state[parameter].update(state)


@pytest.mark.parametrize(
    ("state", "group", "first", "second", "ratio", "words"),
    [
        ({"exp_avg": torch.ones(SHAPE)}, {"betas": (0.9, 0.99)}, "exp_avg", None, False, None),  # Lion
        ({"momentum_buffer": torch.ones(SHAPE), "step": 3}, {}, "momentum_buffer", None, False, None),  # Muon
        (
            {"exp_avg_sq_row": torch.ones(4), "exp_avg_sq_col": torch.ones(3), "RMS": 1.0},
            {"eps": (1e-30, 1e-3)},
            None,
            None,
            False,
            "factors",
        ),
        (
            {"state1": torch.ones(SHAPE, dtype=torch.uint8), "state2": torch.ones(SHAPE, dtype=torch.uint8)},
            {"betas": (0.9, 0.99)},
            None,
            None,
            False,
            "8 bits",
        ),
        ({"state1": torch.ones(SHAPE), "state2": torch.ones(SHAPE), "step": 2}, {}, "state1", "state2", True, None),
        (
            {"exp_avg": torch.ones(SHAPE), "exp_avg_sq": torch.ones(SHAPE), "GG": []},
            {},
            "exp_avg",
            "exp_avg_sq",
            False,
            "another basis",
        ),
        ({"wanderer": torch.ones(SHAPE)}, {}, None, None, False, "keeps wanderer, not known as a moment"),
        ({"exp_avg": torch.ones(5), "exp_avg_sq": torch.zeros(0)}, {}, None, None, False, None),
        ({"exp_avg": "no tensor"}, {}, None, None, False, None),
    ],
)
def test_optimizers_of_others(
    state: dict[str, Any], group: dict[str, Any], first: str | None, second: str | None, ratio: bool, words: str | None
) -> None:
    parameter = nn.Parameter(torch.ones(SHAPE))
    optimizer = Theirs(parameter, state, **group)
    found = find_moments(optimizer)
    moments = found.moments[id(parameter)]
    assert named(optimizer, parameter, moments.first) == first
    assert named(optimizer, parameter, moments.second) == second
    assert moments.ratio_is_defined is ratio
    assert any(words in note for note in found.notes) if words else not found.notes


def test_groups_keep_their_own_epsilon() -> None:
    parameters = [nn.Parameter(torch.ones(SHAPE)) for _ in range(2)]
    groups = [{"params": parameters[:1], "eps": 1e-6}, {"params": parameters[1:], "betas": (0.9, 0.95)}]
    optimizer = torch.optim.AdamW(groups, lr=0.01, eps=1e-10)
    for parameter in parameters:
        parameter.grad = torch.ones(SHAPE)
    optimizer.step()
    found = find_moments(optimizer).moments
    assert [found[id(parameter)].epsilon for parameter in parameters] == [1e-6, 1e-10]
    biases = [found[id(parameter)].root_bias() for parameter in parameters]
    assert biases == pytest.approx([math.sqrt(1 - 0.999), math.sqrt(1 - 0.95)])


def test_correction_that_is_switched_off_or_has_not_begun() -> None:
    state = {"exp_avg": torch.ones(SHAPE), "exp_avg_sq": torch.ones(SHAPE), "step": torch.tensor(4.0)}
    parameter = nn.Parameter(torch.ones(SHAPE))
    off = Theirs(parameter, state, betas=(0.9, 0.99), correct_bias=False)
    assert find_moments(off).moments[id(parameter)].root_bias() == 1.0
    tensors = Theirs(parameter, state, betas=(torch.tensor(0.9), torch.tensor(0.99)))
    assert find_moments(tensors).moments[id(parameter)].root_bias() == pytest.approx(math.sqrt(1 - 0.99**4))
    unstepped = Theirs(parameter, {**state, "step": 0}, betas=(0.9, 0.99))
    assert find_moments(unstepped).moments[id(parameter)].root_bias() == 0.0


def test_no_entry_is_made_for_a_parameter_without_state() -> None:
    parameter = nn.Parameter(torch.ones(SHAPE))
    optimizer = torch.optim.AdamW([parameter])
    assert find_moments(optimizer).moments == {}
    assert not optimizer.state


def test_complex_parameters_have_their_moments() -> None:
    parameter = nn.Parameter(torch.ones(SHAPE, dtype=torch.complex64))
    parameter.grad = torch.full(SHAPE, 3 + 4j)
    optimizer = torch.optim.Adam([parameter])
    optimizer.step()
    moments = find_moments(optimizer).moments[id(parameter)]
    assert moments.first is not None
    assert moments.first.shape == (*SHAPE, 2)
    assert moments.ratio_is_defined
