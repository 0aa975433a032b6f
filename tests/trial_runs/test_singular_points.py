"""Operations that are kept away from their singular points."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from steadytrain.trial_runs.changes.singular_points import SafeOperation
from steadytrain.trial_runs.launched_script import Launched

AT_THE_EDGE: dict[str, Callable[[Tensor], Tensor]] = {
    "log": lambda zero: zero.log(),
    "log1p": lambda zero: torch.log1p(zero - 1),
    "sqrt": lambda zero: zero.sqrt(),
    "root by power": lambda zero: zero**0.5,
    "inverse by power": lambda zero: zero**-1,
    "division": lambda zero: zero / zero,
    "number over zero": lambda zero: 1 / zero,
    "zero over the number zero": lambda zero: zero / (zero.ndim - 1),
    "atanh": lambda zero: torch.atanh(zero + 1),
    "acos": lambda zero: torch.acos(zero + 1),
    "logit": lambda zero: torch.logit(zero + 1),
    "erfinv": lambda zero: torch.erfinv(zero + 1),
    "exp": lambda zero: (zero[:1] + 1e4).exp(),
    "cosh of a negative number": lambda zero: (zero[:1] - 1e4).cosh(),
    "Bessel function": lambda zero: torch.special.i0(zero[:1] + 100.0).log(),
    "Bessel function of order one": lambda zero: torch.special.i1(zero[:1] - 100.0),
    "scaled complementary error function": lambda zero: torch.special.erfcx(zero[:1] - 9.38),
    "Poisson likelihood of a rate": lambda zero: torch.nn.functional.poisson_nll_loss(
        zero - 1, torch.ones(4), log_input=False
    ),
    "logarithm of gamma": lambda zero: torch.lgamma(zero),
    "digamma": lambda zero: torch.digamma(zero),
    "inverse normal distribution": lambda zero: torch.special.ndtri(zero),
    "zero times infinity": lambda zero: zero * torch.full_like(zero, -torch.inf),
    "deviation of one": lambda zero: zero / (zero[:1].std() + 1),
    "variance of one, by row": lambda zero: zero / (zero[:, None].var(dim=1) + 1),
    "svd": lambda zero: torch.matmul(*torch.linalg.svd(zero.view(2, 2))[::2]),
    "svd of a tall matrix": lambda zero: torch.linalg.svd(zero.view(4, 1).expand(4, 2), full_matrices=False)[0],
    "eigh": lambda zero: torch.linalg.eigh(zero.view(2, 2) + torch.eye(2))[1] ** 2 * torch.tensor([1.0, 2.0]),
    "qr": lambda zero: torch.linalg.qr(zero.view(2, 2))[0],
    "slogdet": lambda zero: zero.view(2, 2).slogdet()[1],
    "rows over their std": lambda zero: (zero - zero.mean()) / zero.std(),
}


@pytest.fixture
def change() -> Iterator[SafeOperation]:
    process, made = Launched(), SafeOperation()
    made.begin(process)
    yield made
    process.functions.end()


def gradient(function: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    zero = torch.zeros(4, requires_grad=True)
    value = function(zero).sum()
    return value.detach(), torch.autograd.grad(value, zero)[0]


@pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")
@pytest.mark.parametrize("name", AT_THE_EDGE)
def test_without_the_change_the_value_or_its_gradient_is_not_finite(name: str) -> None:
    value, slope = gradient(AT_THE_EDGE[name])
    assert not (torch.isfinite(value).all() and torch.isfinite(slope).all())


@pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")
@pytest.mark.parametrize("name", AT_THE_EDGE)
def test_with_the_change_both_are_finite(change: SafeOperation, name: str) -> None:
    value, slope = gradient(AT_THE_EDGE[name])
    assert torch.isfinite(value).all()
    assert torch.isfinite(slope).all()
    assert change.touched


def test_what_is_far_from_an_edge_stays_as_it_is(change: SafeOperation) -> None:
    inside = torch.tensor([0.2, 0.7])
    others = torch.stack([inside.log(), inside**0.5, inside**2, inside / 3, inside.atanh(), inside.std().expand(2)])
    assert not change.touched
    with torch._C.DisableTorchFunction():
        plain = torch.stack([inside.log(), inside**0.5, inside**2, inside / 3, inside.atanh(), inside.std().expand(2)])
    assert torch.equal(others, plain)


@pytest.mark.parametrize("function", [torch.linalg.cholesky, torch.linalg.inv, torch.inverse])
def test_a_singular_matrix_is_decomposed(change: SafeOperation, function: Callable[[Tensor], Tensor]) -> None:
    matrix = torch.tensor([[1.0, 1.0], [1.0, 1.0]], requires_grad=True)
    value = function(matrix)
    value.sum().backward()
    assert change.touched
    assert torch.isfinite(value).all()
    assert matrix.grad is not None
    assert torch.isfinite(matrix.grad).all()


def test_of_a_batch_only_the_matrix_at_the_edge_changes(change: SafeOperation) -> None:
    both = torch.stack([torch.diag(torch.tensor([1.0, 3.0])), torch.eye(2)])
    with torch._C.DisableTorchFunction():
        plain = torch.linalg.eigh(both)[0]
    values = torch.linalg.eigh(both)[0]
    assert torch.equal(values[0], plain[0])
    assert not torch.equal(values[1], plain[1])
    assert torch.allclose(values[1], plain[1], atol=0.05)


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.linalg.eigh(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))[0],  # eigenvalues 1 and -1
        lambda: torch.linalg.eig(torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))[0],  # a complex pair
        lambda: torch.linalg.svd(torch.diag(torch.tensor([1.0, 2e-3, 1.8e-3])))[1],
        lambda: torch.linalg.cholesky(torch.eye(8) * 1e-5 + torch.ones(8, 8)),
        lambda: torch.linalg.inv(torch.diag(torch.tensor([1.0, 1e-4]))),
    ],
)
def test_a_matrix_that_is_only_near_an_edge_stays(change: SafeOperation, call: Callable[[], Tensor]) -> None:
    call()
    assert not change.touched


def test_a_matrix_given_by_name_and_the_upper_triangle(change: SafeOperation) -> None:
    assert torch.isfinite(torch.linalg.inv(A=torch.zeros(2, 2))).all()
    assert change.touched
    assert torch.isfinite(torch.linalg.solve(A=torch.eye(2), B=torch.ones(2))).all()
    upper = torch.tensor([[1.0, 1.0], [0.0, 1.0]])  # what counts of it is singular
    assert torch.isfinite(torch.linalg.cholesky(upper, upper=True)).all()


def test_matrices_in_half_precision_and_under_vmap_are_left_to_the_call(change: SafeOperation) -> None:
    two = torch.eye(2).expand(3, 2, 2)
    assert torch.equal(torch.func.vmap(torch.linalg.inv)(two), two)
    assert not change.touched
