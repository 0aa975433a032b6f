"""Loops that the tests of changes share."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from replaying import plain_process  # noqa: E402

STEPS, EVERY, BEGIN = 12, 4, 5


@pytest.fixture(autouse=True)
def _plain_process() -> Iterator[None]:
    with plain_process():
        yield


class Rows(nn.Module):
    """Batch statistics, dropout, units that may die, a layer that is frozen."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.embed = nn.Linear(6, 8, dtype=dtype)
        self.frozen = nn.Linear(8, 8, dtype=dtype).requires_grad_(False)
        self.norm, self.drop = nn.BatchNorm1d(8, dtype=dtype), nn.Dropout(0.2)
        self.head = nn.Linear(8, 4, dtype=dtype)

    def forward(self, rows: Tensor) -> Tensor:
        return self.head(functional.relu(self.drop(self.norm(self.frozen(self.embed(rows))))))


def classify(
    dtype: torch.dtype = torch.float32, *, autocast: torch.dtype | None = None, scaled: bool = False, clip: bool = False
) -> None:
    torch.manual_seed(0)
    net = Rows(dtype)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.02, weight_decay=0.1)
    rows = torch.randn(48, 6)
    data = TensorDataset(rows, rows[:, :4].argmax(1))
    loader = DataLoader(data, batch_size=8, shuffle=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=scaled)
    step = 0
    while step < STEPS:
        for x, y in loader:
            if step == STEPS:
                break
            with torch.autocast("cpu", dtype=autocast or torch.bfloat16, enabled=autocast is not None):
                out = net(x.to(dtype))
                loss = functional.cross_entropy(out, y) + 0.1 * functional.mse_loss(out, torch.ones_like(out))
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            if clip:
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            step += 1


def broadcasts() -> None:
    """A target of shape [6] against predictions of shape [6, 1]; gradients above 1."""
    torch.manual_seed(0)
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(STEPS):
        x = torch.randn(6, 4)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loss = functional.mse_loss(net(x), 3 * x.sum(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def broadcasts_by_hand() -> None:
    """The same with a difference of the script's own."""
    torch.manual_seed(0)
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(STEPS):
        x = torch.randn(6, 4)
        loss = (net(x) - 3 * x.sum(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def noised_twice() -> None:
    torch.manual_seed(0)
    net = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(STEPS):
        noise = torch.randn(6, 4)
        noised = torch.rand(6, 4) + torch.randn_like(noise)
        loss = functional.mse_loss(net(noised), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def softened_twice() -> None:
    torch.manual_seed(0)
    net = nn.Linear(4, 5)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    for _ in range(STEPS):
        x = torch.randn(6, 4)
        loss = functional.cross_entropy(net(x).softmax(-1), x.argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def small_second_moments() -> None:
    """Adam takes the root of second moments around 1e-10."""
    torch.manual_seed(0)
    net = nn.Linear(4, 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, foreach=False)
    for _ in range(STEPS):
        x = torch.randn(6, 4)
        loss = 1e-5 * functional.mse_loss(net(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def coded() -> None:
    """Two of the inputs are a code for what is missing."""
    torch.manual_seed(0)
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-8)
    for _ in range(STEPS):
        x = torch.randn(8, 4)
        x[0, :2] = -999.0
        loss = functional.mse_loss(net(x), torch.ones(8, 1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
