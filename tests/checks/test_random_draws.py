"""One check names a model that samples in evaluation, with its line; checks that compare two calls do not judge it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")
from healthy_models import Given, tabular  # noqa: E402
from planted_loops import drops_always, squeezes  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from replaying import plain_process  # noqa: E402
from steadytrain.preflight_runs.in_code import check  # noqa: E402


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with plain_process():
        yield


class Samples(nn.Module):
    """As a variational autoencoder: a mean, a spread, and a draw between them."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(6, 4), nn.Linear(2, 6)

    def forward(self, x: Tensor) -> Tensor:
        mean, spread = self.encoder(x).chunk(2, -1)
        drawn = mean + spread.exp() * torch.randn_like(mean)
        found: Tensor = self.decoder(drawn)
        return found


def line_of_draw() -> str:
    lines, first = inspect.getsourcelines(Samples)
    return f"{__file__.rsplit('/', 1)[-1]}:{first + next(n for n, line in enumerate(lines) if 'randn_like' in line)}"


def autoencoder() -> Given:
    torch.manual_seed(0)
    batches = [torch.randn(8, 6) for _ in range(2)]
    return {
        "model": Samples(),
        "batches": batches,
        "loss_fn": lambda model, batch: (model(batch) - batch).square().mean(),
    }


def noise_in_the_loss() -> Given:
    given = dict(autoencoder())
    given["model"] = nn.Linear(6, 6)
    given["loss_fn"] = lambda model, batch: (model(batch) - torch.randn_like(batch)).square().mean()
    return given


@pytest.mark.parametrize("name", ["batch-size-invariance", "order-invariance"])
def test_calls_of_a_model_that_samples_are_not_compared(name: str) -> None:
    found = check(name, **autoencoder())
    assert found.status == "not-run"
    assert found.message == f"the model draws random numbers in evaluation (randn_like, {line_of_draw()})"


def test_a_model_that_samples_is_a_warning_that_names_the_line() -> None:
    found = check("eval-determinism", **autoencoder())
    assert found.status == "warn"
    assert f"randn_like, {line_of_draw()}" in found.message
    assert "return the mean" in found.next
    assert found.numbers["place"] == line_of_draw()


def test_noise_in_the_loss_is_not_the_models() -> None:
    found = check("order-invariance", **noise_in_the_loss())
    assert (found.status, found.message[:33]) == ("not-run", "the code of the loss draws random"), found


def test_a_dropout_that_ignores_the_mode_stays_a_fault() -> None:
    found = check("eval-determinism", **drops_always())
    assert found.status == "fail"
    assert "dropout is on at planted_loops.py:" in found.message
    assert "training=self.training" in found.next


def test_a_model_that_draws_nothing_is_still_judged() -> None:
    assert check("batch-size-invariance", **squeezes()).status == "fail"
    assert check("eval-determinism", **tabular()).status == "pass"
