"""A recorded loop is replayed to the last bit from every snapshot, whatever it draws, feeds and keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from parameters import telling  # noqa: E402
from replaying import Loop, plain_process, record, replay  # noqa: E402
from steadytrain.replay.verdict import Replayed  # noqa: E402

STEPS, EVERY, WORDS = 13, 4, 11


@pytest.fixture(autouse=True)
def _plain_process() -> Iterator[None]:
    with plain_process():
        yield


class Net(nn.Module):
    """Dropout, batch statistics, tied weights, a parameter that gets no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 8)
        self.middle, self.norm, self.drop = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.3)
        self.unused = nn.Linear(2, 2)
        self.head = nn.Linear(8, WORDS, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.drop(self.norm(torch.tanh(self.middle(self.words(ids))))))


def made(optimizer: Callable[..., Any] = torch.optim.AdamW, **how: Any) -> tuple[Net, Any]:
    torch.manual_seed(0)
    net = Net()
    return net, optimizer(net.parameters(), lr=0.05, **how)


def ids(count: int = 6) -> Tensor:
    return torch.randint(0, WORDS, (count,))


def update(net: nn.Module, optimizer: Any, x: Tensor, y: Tensor) -> None:
    loss = functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def draws_its_batches() -> None:
    net, optimizer = made()
    for _ in range(STEPS):
        update(net, optimizer, ids(), ids())


def shuffled_loader() -> None:
    """Epochs of three steps: an iterator that is through raises, which is no batch."""
    net, optimizer = made()
    data = TensorDataset(torch.arange(18) % WORDS, torch.arange(18) * 7 % WORDS)
    loader = DataLoader(data, batch_size=6, shuffle=True)
    step = 0
    while step < STEPS:
        for x, y in loader:
            if step < STEPS:
                update(net, optimizer, x, y)
                step += 1


def loader_that_is_read_ahead() -> None:
    """As Accelerate does it: the next batch is fetched before this one is used."""
    net, optimizer = made()
    data = TensorDataset(torch.arange(600) % WORDS, torch.arange(600) * 7 % WORDS)
    batches = iter(DataLoader(data, batch_size=6, shuffle=True))
    following = next(batches)
    for _ in range(STEPS):
        batch, following = following, next(batches)
        update(net, optimizer, *batch)


def accumulation_with_warm_restarts() -> None:
    net, optimizer = made(torch.optim.SGD, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 5)
    for _ in range(STEPS):
        for _ in range(3):
            (functional.cross_entropy(net(ids()), ids()) / 3).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=False)


def evaluations_between() -> None:
    net, optimizer = made()
    for step in range(STEPS):
        if step % 3 == 2:
            net.eval()
            with torch.no_grad():
                net(ids())
            net.train()
        update(net, optimizer, ids(), ids())


def reused_batch_tensor() -> None:
    """The same memory for every batch, changed in place after use."""
    net, optimizer = made()
    x = torch.zeros(6, dtype=torch.long)
    for _ in range(STEPS):
        x.copy_(ids())
        y = ids()
        update(net, optimizer, x, y)
        x.zero_()


def bfloat16_autocast() -> None:
    net, optimizer = made()
    for _ in range(STEPS):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = functional.cross_entropy(net(ids()), ids())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def gradient_scaler() -> None:
    """Its scale starts too high, so its first steps are skipped, and later it grows into an overflow again."""
    net, optimizer = made()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20, growth_interval=3)
    for _ in range(STEPS):
        with torch.autocast("cpu", dtype=torch.float16):
            loss = functional.cross_entropy(net(ids()), ids())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def thaws_a_layer() -> None:
    """A layer gets its first gradient, and its optimizer state, later than the others."""
    net, optimizer = made()
    net.middle.requires_grad_(False)
    for step in range(STEPS):
        if step == 3:
            net.middle.requires_grad_(True)
        update(net, optimizer, ids(), ids())


def noise_after_the_forward() -> None:
    net, optimizer = made()
    for _ in range(STEPS):
        logits = net(ids())
        loss = functional.cross_entropy(logits + 0.1 * torch.randn_like(logits), ids())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def clamped_weights() -> None:
    """Weights that the script changes itself between two steps, past their version counters."""
    net, optimizer = made(torch.optim.RMSprop)
    for _ in range(STEPS):
        update(net, optimizer, ids(), ids())
        for parameter in net.parameters():
            parameter.data.clamp_(-0.4, 0.4)


def layouts() -> None:
    """Inputs that are views, expanded or channels-last."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01, amsgrad=True)
    for _ in range(STEPS):
        x = torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last)
        y = torch.randn(1, 3, 6, 6).expand(2, 3, 6, 6)
        (net(x) - net(y)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


LOOPS: list[Loop] = [
    draws_its_batches,
    shuffled_loader,
    loader_that_is_read_ahead,
    accumulation_with_warm_restarts,
    evaluations_between,
    reused_batch_tensor,
    bfloat16_autocast,
    gradient_scaler,
    thaws_a_layer,
    noise_after_the_forward,
    clamped_weights,
    layouts,
]
TELLING = {
    *("shuffled_loader", "accumulation_with_warm_restarts", "evaluations_between", "gradient_scaler"),
    *("noise_after_the_forward", "layouts"),
}


@pytest.mark.parametrize("loop", telling(LOOPS, TELLING, lambda loop: loop.__name__))
def test_every_step_is_replayed_exactly_from_every_snapshot(loop: Loop, tmp_path: Path) -> None:
    recording = record(loop, tmp_path / "run", every=EVERY)
    assert recording.starts() == [2, 6, 10]
    for first, own_steps in ((2, 1), (6, 1), (10, 9)):
        result = replay(loop, recording, first, own_steps=own_steps)
        assert isinstance(result, Replayed), result
        assert result.first_difference is None, (first, own_steps, result)
        assert result.steps == STEPS - first + 1
        assert len(result.notes) == (own_steps == 1 and first > 2), result.notes


def evaluated_after_each_epoch() -> None:
    """Epochs of four steps: steps 5 and 9 are the first of theirs, and an evaluation stands before them."""
    net, optimizer = made()
    data = TensorDataset(torch.arange(24) % WORDS, torch.arange(24) * 7 % WORDS)
    loader = DataLoader(data, batch_size=6, shuffle=True)
    for _ in range(-(-STEPS // 4)):
        for x, y in loader:
            update(net, optimizer, x, y)
        net.eval()
        with torch.no_grad():
            net(ids())
        net.train()


@pytest.mark.parametrize("first", telling([6, 10], ["10"]))
def test_an_epoch_that_begins_with_the_last_own_step_has_its_own_order(first: int, tmp_path: Path) -> None:
    recording = record(evaluated_after_each_epoch, tmp_path / "run", every=EVERY)
    result = replay(evaluated_after_each_epoch, recording, first, own_steps=first - 1)
    assert isinstance(result, Replayed), result
    assert result.first_difference is None
    assert result.script_batches_equal is True
