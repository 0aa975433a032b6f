"""Plain training loops that evaluate, each with the values of its evaluations as the loop itself computes them.

A loop is called with nothing and returns a :class:`Told`. ``BROKEN`` must raise ``validation-gap``, and
``HEALTHY`` must not.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Told:
    """What a loop printed: the values of each evaluation by name, and the last weights."""

    values: dict[str, list[float]] = field(default_factory=dict)
    weights: list[Tensor] = field(default_factory=list)

    def tell(self, value: float, name: str = "validation") -> None:
        self.values.setdefault(name, []).append(value)


def clusters(rows: int, *, classes: int = 4, noise: float = 0.6, seed: int = 0, names: Tensor | None = None):  # type: ignore[no-untyped-def]
    """Points around one centre for each class; ``names`` permutes the labels."""
    centres = 1.5 * torch.randn(classes, 8, generator=torch.Generator().manual_seed(7))
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (rows,), generator=draw)
    points = centres[labels] + noise * torch.randn(rows, 8, generator=draw)
    return points, labels if names is None else names[labels]


def batches(points: Tensor, labels: Tensor, size: int = 32) -> Iterator[tuple[Tensor, Tensor]]:
    for start in range(0, len(points), size):
        yield points[start : start + size], labels[start : start + size]


def mlp(outputs: int = 4, *, inputs: int = 8, width: int = 32, middle: nn.Module | None = None) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, width), middle or nn.Identity(), nn.ReLU(), nn.Linear(width, outputs))


def evaluate(model: nn.Module, points: Tensor, labels: Tensor) -> float:
    model.eval()
    total = 0.0
    with torch.no_grad():
        for x, y in batches(points, labels):
            total += F.cross_entropy(model(x), y).item() * len(x)
    model.train()
    return total / len(points)


def trained(
    model: nn.Module,
    train: tuple[Tensor, Tensor],
    held_out: tuple[Tensor, Tensor],
    *,
    epochs: int = 12,
    rate: float = 3e-3,
    patience: int | None = None,
    smoothing: float = 0.0,
) -> Told:
    told, best, waited = Told(), float("inf"), 0
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(epochs):
        for x, y in batches(*train):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y, label_smoothing=smoothing).backward()
            optimizer.step()
        loss = evaluate(model, *held_out)
        told.tell(loss)
        best, waited = min(best, loss), 0 if loss < best else waited + 1
        if patience is not None and waited >= patience:
            break
    told.weights = [one.detach().clone() for one in model.parameters()]
    return told


# -- broken --------------------------------------------------------------------------------------------------------


def slow_statistics() -> Told:
    """Batch norm with a momentum of 0.0003 on inputs that are not scaled: its statistics never arrive."""
    torch.manual_seed(0)
    layers = [[nn.Linear(8 if not at else 32, 32), nn.BatchNorm1d(32, momentum=0.0003), nn.ReLU()] for at in range(3)]
    model = nn.Sequential(*(one for layer in layers for one in layer), nn.Linear(32, 4))
    points, labels = clusters(512, noise=1.0)
    held_out, truth = clusters(256, seed=1, noise=1.0)
    return trained(model, (4.0 * points + 60.0, labels), (4.0 * held_out + 60.0, truth))


def categories_anew() -> Told:
    """The classes are numbered in another order for the validation split."""
    torch.manual_seed(0)
    return trained(mlp(), clusters(512), clusters(256, seed=1, names=torch.tensor([2, 0, 3, 1])))


def scaled_anew() -> Told:
    """Training inputs are standardized, validation inputs are not."""
    torch.manual_seed(0)
    points, labels = clusters(512)
    held_out, truth = clusters(256, seed=1)
    return trained(mlp(), (points, labels), (-25.0 * held_out + 90.0, truth))


def random_labels() -> Told:
    """Labels without any relation to the inputs are learned by heart."""
    torch.manual_seed(0)
    points, labels = clusters(128)
    held_out, truth = clusters(256, seed=1)
    labels = torch.randint(0, 4, labels.shape, generator=torch.Generator().manual_seed(5))
    return trained(mlp(width=256), (points, labels), (held_out, truth), epochs=40, rate=1e-2)


def tiny_data() -> Told:
    """Sixteen noisy rows: the validation loss rises from the first epochs on, for forty of them."""
    torch.manual_seed(0)
    points, labels = clusters(16, noise=3.0)
    return trained(mlp(width=256), (points, labels), clusters(256, noise=3.0, seed=1), epochs=60, rate=1e-2)


def leaked_column() -> Told:
    """A column holds the target in training, and zeros in validation. A regression."""
    torch.manual_seed(0)
    told, model = Told(), mlp(1, inputs=9)
    points = torch.randn(512, 8)
    target = 3.0 * torch.randn(512, 1)
    held_out, truth = torch.randn(256, 8), 3.0 * torch.randn(256, 1)
    optimizer, criterion = torch.optim.Adam(model.parameters(), lr=3e-3), nn.MSELoss()
    for _ in range(15):
        for x, y in batches(torch.cat([points, target], 1), target):
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
        model.eval()
        with torch.inference_mode():
            told.tell(criterion(model(torch.cat([held_out, torch.zeros(256, 1)], 1)), truth).item())
        model.train()
    return told


# -- healthy -------------------------------------------------------------------------------------------------------


class Small(nn.Module):
    """A convolution, batch norm and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.3), nn.Flatten())
        self.head = nn.Linear(8 * 36, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))  # type: ignore[no-any-return]


def images(rows: int, seed: int) -> TensorDataset:
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, (rows,), generator=draw)
    pictures = 0.5 * torch.randn(rows, 1, 8, 8, generator=draw)
    for at, label in enumerate(labels.tolist()):
        pictures[at, 0, 4 * (label // 2) : 4 * (label // 2) + 4, 4 * (label % 2) : 4 * (label % 2) + 4] += 0.7
    return TensorDataset(pictures, labels)


def cnn() -> Told:
    """The usual loop over loaders; dropout makes training look worse than validation."""
    torch.manual_seed(0)
    told, model, criterion = Told(), Small(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    loader = DataLoader(images(256, 0), batch_size=32, shuffle=True)
    for _ in range(8):
        for x, y in loader:
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
        model.eval()
        total = rows = 0.0
        with torch.no_grad():
            for x, y in DataLoader(images(128, 1), batch_size=50):
                total += criterion(model(x), y).item() * len(y)
                rows += len(y)
        told.tell(total / rows)
        model.train()
    return told


class Language(nn.Module):
    """A recurrent language model that computes its own loss."""

    def __init__(self, words: int = 12) -> None:
        super().__init__()
        self.table, self.cell, self.head = (
            nn.Embedding(words, 16),
            nn.GRU(16, 32, batch_first=True),
            nn.Linear(32, words),
        )

    def forward(self, ids: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        logits = self.head(self.cell(self.table(ids))[0])
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=-100)


def text(rows: int, seed: int) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    start = torch.randint(0, 12, (rows, 1), generator=draw)
    return (start + torch.arange(17) * 5) % 12


def language_model() -> Told:
    """nanoGPT's way: two splits in one function, the loss inside of the model, and samples in between."""
    torch.manual_seed(0)
    told, model = Told(), Language()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    data = {"train": text(256, 0), "val": text(64, 1)}

    @torch.no_grad()
    def estimate_loss() -> None:
        model.eval()
        for split in ("train", "val"):
            losses = torch.zeros(4)
            for k in range(4):
                rows = data[split][16 * k : 16 * k + 16]
                targets = rows[:, 1:].clone()
                targets[:, 13:] = -100
                losses[k] = model(rows[:, :-1], targets)[1].item()
            told.tell(losses.mean().item(), split)
        ids = data["val"][:1, :2]
        for _ in range(6):
            ids = torch.cat([ids, model(ids)[0][:, -1:].argmax(-1)], 1)
        model.train()

    for step in range(120):
        if step % 20 == 0:
            estimate_loss()
        rows = data["train"][torch.randint(0, 256, (32,))]
        optimizer.zero_grad()
        loss = model(rows[:, :-1], rows[:, 1:])[1]
        assert loss is not None
        loss.backward()
        optimizer.step()
    return told


def accumulating() -> Told:
    """nanoGPT's training: each loss is divided by the number of micro-batches, here 2, and evaluated undivided."""
    torch.manual_seed(0)
    told, model = Told(), Language()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    data = {"train": text(256, 0), "val": text(64, 1)}
    for step in range(60):
        if step % 20 == 0:
            model.eval()
            with torch.no_grad():
                loss = model(data["val"][:, :-1], data["val"][:, 1:])[1]
                assert loss is not None
                told.tell(loss.item())
            model.train()
        optimizer.zero_grad()
        for _ in range(2):
            rows = data["train"][torch.randint(0, 256, (16,))]
            loss = model(rows[:, :-1], rows[:, 1:])[1]
            assert loss is not None
            (loss / 2).backward()
        optimizer.step()
    return told


def early_stopping() -> Told:
    """Ordinary overfitting, and a loop that stops at it."""
    torch.manual_seed(0)
    return trained(
        mlp(width=256), clusters(96, noise=2.0), clusters(256, noise=2.0, seed=1), epochs=60, rate=3e-3, patience=6
    )


def smoothed() -> Told:
    """Label smoothing in training only."""
    torch.manual_seed(0)
    return trained(mlp(), clusters(512), clusters(256, seed=1), smoothing=0.2)


def folds() -> Told:
    """Cross-validation: a new model for each of three folds."""
    torch.manual_seed(0)
    told, (points, labels) = Told(), clusters(384)
    for fold in range(3):
        there = torch.arange(384) % 3 == fold
        one = trained(mlp(), (points[~there], labels[~there]), (points[there], labels[there]), epochs=6)
        told.values[f"fold {fold}"] = one.values["validation"]
    return told


def several_sets() -> Told:
    """Before training and after each epoch: the validation set, and a harder one at its own line."""
    torch.manual_seed(0)
    told, model = Told(), mlp()
    train, near, far = clusters(512), clusters(256, seed=1), clusters(256, seed=2, noise=1.2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(7):
        for x, y in batches(*train) if epoch else ():
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        told.tell(evaluate(model, *near), "near")
        told.tell(evaluate(model, *far), "far")
    return told


def nested() -> Told:
    """Evaluations within the epoch, every five updates."""
    torch.manual_seed(0)
    told, model, held_out = Told(), mlp(), clusters(256, seed=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(3):
        for at, (x, y) in enumerate(batches(*clusters(512))):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            if at % 5 == 4:
                told.tell(evaluate(model, *held_out))
    return told


def distillation() -> Told:
    """A teacher in evaluation mode and an average of the weights: no evaluation at all."""
    torch.manual_seed(0)
    teacher, student = mlp().eval(), mlp()
    average = copy.deepcopy(student).eval()
    optimizer = torch.optim.Adam(student.parameters(), lr=3e-3)
    for x, _ in batches(*clusters(512)):
        with torch.no_grad():
            aim, smooth = teacher(x).softmax(-1), average(x)
            F.mse_loss(smooth, aim)
        optimizer.zero_grad()
        F.cross_entropy(student(x), aim).backward()
        optimizer.step()
        for old, new in zip(average.parameters(), student.parameters(), strict=True):
            old.data.lerp_(new.data, 0.1)
    return Told()


def rollouts() -> Told:
    """A policy acts in evaluation mode without gradients, and is then trained on what it did."""
    torch.manual_seed(0)
    policy = mlp(2)
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    state = torch.randn(1, 8)
    for _ in range(20):
        policy.eval()
        states, actions = [], []
        with torch.no_grad():
            for _ in range(16):
                action = torch.multinomial(policy(state).softmax(-1), 1)
                states.append(state)
                actions.append(action)
                state = 0.9 * state + 0.3 * torch.randn(1, 8)
        policy.train()
        optimizer.zero_grad()
        reward = torch.cat(states)[:, :1]
        chosen = policy(torch.cat(states)).log_softmax(-1).gather(1, torch.cat(actions))
        (-(reward * chosen).mean()).backward()
        optimizer.step()
    return Told()


BROKEN: tuple[Callable[[], Told], ...] = (
    slow_statistics,
    categories_anew,
    scaled_anew,
    random_labels,
    tiny_data,
    leaked_column,
)
HEALTHY: tuple[Callable[[], Told], ...] = (
    cnn,
    language_model,
    accumulating,
    early_stopping,
    smoothed,
    folds,
    several_sets,
    nested,
    distillation,
    rollouts,
)
