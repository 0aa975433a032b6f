"""Small trainings, the faults that are planted in them, and whether a fault did harm."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from early_runs.recorder import Curves, recorded

STEPS_AFTER, PROBE_EVERY = 200, 10
ONSETS = (0, 5, 20, 60, 150, 300)
PLANNED = 600


@dataclass
class Parts:
    """A training that is ready to run: ``batch`` draws inputs and targets."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    batch: Callable[[torch.Generator], tuple[Tensor, Tensor]]
    criterion: Callable[[Tensor, Tensor], Tensor]
    rate: Callable[[int], float] = lambda step: 1.0
    clip: float = math.inf


def _classes(size: int, spread: float) -> Callable[[torch.Generator], tuple[Tensor, Tensor]]:
    centres = torch.randn(8, size, generator=torch.Generator().manual_seed(7))

    def batch(g: torch.Generator) -> tuple[Tensor, Tensor]:
        y = torch.randint(8, (32,), generator=g)
        return centres[y] + spread * torch.randn(32, size, generator=g), y

    return batch


def _smooth(g: torch.Generator) -> tuple[Tensor, Tensor]:
    x = torch.randn(32, 6, generator=g)
    return x, torch.sin(2 * x[:, :1]) + x[:, 1:2] * x[:, 2:3] + 0.1 * torch.randn(32, 1, generator=g)


def _words(g: torch.Generator) -> tuple[Tensor, Tensor]:
    """Sequences in which the next word depends on the last two, and noise."""
    x = torch.randint(16, (16, 13), generator=g)
    for at in range(2, 13):
        known = (3 * x[:, at - 1] + 5 * x[:, at - 2] + 1) % 16
        x[:, at] = torch.where(torch.rand(16, generator=g) < 0.9, known, x[:, at])
    return x[:, :-1], x[:, 1:]


def _cosine(step: int) -> float:
    warm = min(1.0, (step + 1) / 20)
    return warm * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * min(step, PLANNED) / PLANNED)))


def _tokens(out: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(out.flatten(0, 1), y.flatten())


def _pictures(g: torch.Generator) -> tuple[Tensor, Tensor]:
    """A bright patch in one of eight places, in noise."""
    y = torch.randint(8, (32,), generator=g)
    x = 0.7 * torch.randn(32, 1, 8, 8, generator=g)
    for row, place in enumerate(y.tolist()):
        x[row, 0, 2 * (place // 2) : 2 * (place // 2) + 2, 4 * (place % 2) : 4 * (place % 2) + 3] += 1.0
    return x, y


def _views(g: torch.Generator) -> tuple[Tensor, Tensor]:
    """Two noisy views of each of 16 things: the second half of the rows in the order of ``y``."""
    basis = torch.randn(6, 16, generator=torch.Generator().manual_seed(3))
    things, y = torch.randn(16, 6, generator=g) @ basis, torch.randperm(16, generator=g)
    first, second = things + torch.randn(16, 16, generator=g), things + torch.randn(16, 16, generator=g)
    return torch.cat([first, second[y]]), y.argsort()


def _contrast(out: Tensor, y: Tensor) -> Tensor:
    first, second = F.normalize(out, dim=1).chunk(2)
    return F.cross_entropy(first @ second.T / 0.2, y)


def _pairs(g: torch.Generator) -> tuple[Tensor, Tensor]:
    x = torch.randn(64, 2, generator=g)
    return x, torch.stack([x[:, 0] + 0.05 * torch.randn(64, generator=g), x.prod(1)], 1)


def _likelihood(out: Tensor, y: Tensor) -> Tensor:
    """Of a normal distribution; it becomes negative."""
    mean, log = out.chunk(2, 1)
    return (0.5 * ((y - mean) / log.exp()).pow(2) + log).mean()


def _noisy(g: torch.Generator) -> tuple[Tensor, Tensor]:
    """Points on a ring with noise of a known amount; the noise is the target."""
    angle, amount = 6.2832 * torch.rand(64, 1, generator=g), torch.rand(64, 1, generator=g)
    noise = torch.randn(64, 2, generator=g)
    clean = torch.cat([angle.cos(), angle.sin()], 1)
    return torch.cat([(1 - amount).sqrt() * clean + amount.sqrt() * noise, amount], 1), noise


def _yes_or_no(g: torch.Generator) -> tuple[Tensor, Tensor]:
    x = torch.randn(4, 8, generator=g)
    return x, (x[:, :1] * x[:, 1:2] + x[:, 2:3] + 0.5 * torch.randn(4, 1, generator=g) > 0).float()


def _warm(step: int) -> float:
    return min(1.0, (step + 1) / 50)


class Attention(nn.Module):
    """One block with causal attention."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(16, 32), nn.Parameter(0.02 * torch.randn(12, 32))
        self.norm, self.mix, self.out = nn.LayerNorm(32), nn.Linear(32, 96), nn.Linear(32, 32)
        self.wide, self.narrow, self.head = nn.Linear(32, 64), nn.Linear(64, 32), nn.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x) + self.place
        q, k, v = self.mix(self.norm(h)).chunk(3, -1)
        h = h + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        logits: Tensor = self.head(h + self.narrow(F.relu(self.wide(h))))
        return logits


class Recurrent(nn.Module):
    """A GRU over words."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.gru, self.head = nn.Embedding(16, 24), nn.GRU(24, 32, batch_first=True), nn.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.gru(self.embed(x))[0])
        return logits


def _mlp(*sizes: int, norm: bool = False) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), *([nn.BatchNorm1d(after)] if norm else []), nn.ReLU()]
    return nn.Sequential(*layers[: -2 if norm else -1])


def _adam(model: nn.Module, rate: float) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), rate)


def _sgd(model: nn.Module, rate: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), rate, momentum=0.9)


def _parts(model: nn.Module, make: Callable[..., torch.optim.Optimizer], rate: float, *rest: object) -> Parts:
    return Parts(model, make(model, rate), *rest)  # type: ignore[arg-type]


def _autoencoder() -> Parts:
    basis = torch.randn(4, 24, generator=torch.Generator().manual_seed(5))

    def batch(g: torch.Generator) -> tuple[Tensor, Tensor]:
        x = torch.tanh(torch.randn(32, 4, generator=g) @ basis)
        return x + 0.2 * torch.randn(32, 24, generator=g), x

    return _parts(_mlp(24, 48, 6, 48, 24), _adam, 2e-3, batch, F.mse_loss)


def _convolutions() -> Parts:
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 12, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(192, 32),
        nn.ReLU(),
        nn.Linear(32, 8),
    )
    return _parts(model, _adam, 1e-3, _pictures, F.cross_entropy, lambda step: 1.0, 1.0)


def _tuned() -> Parts:
    """Goes on with classes that it knows well, moved a little."""
    parts = _parts(_mlp(12, 48, 48, 8), _adam, 2e-3, _classes(12, 1.3), F.cross_entropy)
    g = torch.Generator().manual_seed(77)
    for _ in range(300):
        x, y = parts.batch(g)
        parts.optimizer.zero_grad()
        parts.criterion(parts.model(x + 0.5), y).backward()
        parts.optimizer.step()
    return _parts(parts.model, _adam, 3e-4, _classes(12, 1.3), F.cross_entropy)


LOOPS: dict[str, Callable[[], Parts]] = {
    "easy classes, Adam": lambda: _parts(_mlp(12, 48, 48, 8), _adam, 2e-3, _classes(12, 0.8), F.cross_entropy),
    "hard classes, SGD": lambda: _parts(_mlp(12, 48, 8), _sgd, 0.03, _classes(12, 2.0), F.cross_entropy, _cosine),
    "batch norm": lambda: _parts(_mlp(12, 48, 48, 8, norm=True), _sgd, 0.03, _classes(12, 1.3), F.cross_entropy),
    "regression, Adam": lambda: _parts(_mlp(6, 64, 64, 1), _adam, 3e-3, _smooth, F.mse_loss),
    "regression, SGD": lambda: _parts(_mlp(6, 64, 1), _sgd, 0.01, _smooth, F.mse_loss, _cosine),
    "autoencoder": _autoencoder,
    "attention": lambda: _parts(Attention(), _adam, 3e-3, _words, _tokens, _cosine),
    "recurrent": lambda: _parts(Recurrent(), _adam, 5e-3, _words, _tokens),
    "convolutions, clipped": _convolutions,
    "attention, warm-up, clipped": lambda: _parts(Attention(), _adam, 3e-3, _words, _tokens, _warm, 1.0),
    "contrast": lambda: _parts(_mlp(16, 48, 12), _adam, 2e-3, _views, _contrast),
    "density, clipped": lambda: _parts(_mlp(2, 48, 4), _adam, 3e-3, _pairs, _likelihood, lambda step: 1.0, 5.0),
    "denoiser": lambda: _parts(_mlp(3, 64, 64, 2), _adam, 2e-3, _noisy, F.mse_loss),
    "tuned": _tuned,
    "four rows, yes or no": lambda: _parts(
        _mlp(8, 32, 32, 1), _adam, 3e-3, _yes_or_no, F.binary_cross_entropy_with_logits
    ),
    "language, SGD": lambda: _parts(Recurrent(), _sgd, 0.5, _words, _tokens, _warm, 1.0),
}

FAULTS = (
    "rate times 30",
    "rate times 100",
    "rate times 100 for ten steps",
    "inputs times 1000 in one batch",
    "targets of other inputs",
    "targets renamed",
    "one layer times 10",
    "one layer anew, wide",
    "stale moments",
    "momentum 0.999",
    "decay with the wrong sign",
    "decay that eats the weights",
    "loss maximised",
    "outputs times 50",
    "dead units",
    "four batches of noise",
    "inputs times 30",
    "rate 0",
    "one batch again and again",
)

SILENT = ("rate 0", "one batch again and again")


def _strike(fault: str, late: int, parts: Parts) -> None:
    """What is done to weights and optimizer before a step that is ``late`` steps after the onset."""
    layers = [module for module in parts.model.modules() if isinstance(module, nn.Linear)]
    with torch.no_grad():
        if fault == "decay with the wrong sign":
            for parameter in parts.model.parameters():
                parameter.mul_(1.03)
        if late:
            return
        if fault == "one layer times 10":
            layers[0].weight.mul_(10)
        if fault == "one layer anew, wide":
            nn.init.normal_(layers[len(layers) // 2].weight, std=2.0)
        if fault == "dead units":
            layers[-2 if len(layers) > 1 else 0].bias.fill_(-30.0)
        if fault == "stale moments":
            for state in parts.optimizer.state.values():
                if "exp_avg_sq" in state:
                    state["exp_avg_sq"].mul_(1e-6)
                if state.get("momentum_buffer") is not None:
                    state["momentum_buffer"].normal_()
    for group in parts.optimizer.param_groups:
        if fault == "decay that eats the weights":
            group["weight_decay"] = 1.0
        if fault == "momentum 0.999":
            group.update({"betas": (0.999, 0.999)} if "betas" in group else {"momentum": 0.999})


def _factor(fault: str, late: int) -> float:
    if late < 0:
        return 1.0
    if fault == "rate times 30":
        return 30.0
    if fault == "rate times 100" or (fault == "rate times 100 for ten steps" and late < 10):
        return 100.0
    return 0.0 if fault == "rate 0" else 1.0


def _spoilt(fault: str, late: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    if fault == "inputs times 1000 in one batch" and late == 0:
        x = x * 1000 if x.is_floating_point() else x * 0
    if fault == "inputs times 30" and x.is_floating_point():
        x = x * 30
    if fault == "four batches of noise" and late < 4:
        g = torch.Generator().manual_seed(late)
        x = 10 * torch.randn(x.shape, generator=g) if x.is_floating_point() else torch.randint(16, x.shape, generator=g)
        y = y[torch.randperm(len(y), generator=g)]
    if fault == "targets of other inputs":
        y = y[torch.arange(len(y)).roll(1)]
    if fault == "targets renamed":
        y = -3 * y if y.is_floating_point() else (3 * y + 1) % 8
    return x, y


def train(loop: str, fault: str, onset: int, seed: int) -> tuple[list[Curves], list[float]]:
    """The curves, and the loss on held-out data every ten steps; ``fault`` may be "" for the healthy run."""
    torch.manual_seed(seed)
    parts, probe = LOOPS[loop](), list[float]()
    g, base = torch.Generator().manual_seed(1000 + seed), parts.optimizer.param_groups[0]["lr"]
    held = [parts.batch(torch.Generator().manual_seed(9_000_000 + n)) for n in range(4)]
    x = y = torch.zeros(0)

    def go() -> None:
        nonlocal x, y
        for step in range(onset + STEPS_AFTER + 1):
            if step % PROBE_EVERY == 0:
                parts.model.eval()
                with torch.no_grad():
                    probe.append(sum(float(parts.criterion(parts.model(a), b)) for a, b in held) / 4)
                parts.model.train()
            late = step - onset if fault else -1
            if not (late > 0 and fault == "one batch again and again"):
                x, y = parts.batch(g)
            a, b = x, y
            if late >= 0:
                _strike(fault, late, parts)
                a, b = _spoilt(fault, late, x, y)
            parts.optimizer.param_groups[0]["lr"] = base * parts.rate(step) * _factor(fault, late)
            parts.optimizer.zero_grad()
            out = parts.model(a) * (50.0 if late >= 0 and fault == "outputs times 50" else 1.0)
            loss = parts.criterion(out, b)
            (-loss if late >= 0 and fault == "loss maximised" else loss).backward()
            if math.isfinite(parts.clip):
                nn.utils.clip_grad_norm_(parts.model.parameters(), parts.clip)
            parts.optimizer.step()

    return recorded(go), probe


def harm(cell: list[float], healthy: list[float], onset: int) -> bool:
    """Whether more than a fifth of the progress is lost: at the end, or twice in a row of what was made before."""
    healthy = healthy[: len(cell)]
    if not all(math.isfinite(value) for value in cell):
        return True
    end, own = sum(healthy[-3:]) / 3, sum(cell[-3:]) / 3
    total = healthy[0] - end
    if total <= 0 or (own - end) / total > 0.2:
        return total > 0
    at = onset // PROBE_EVERY
    before = min(healthy[: at + 1])
    made = healthy[0] - before
    if made <= 0.1 * total:
        return False
    over = [(c - max(h, before)) / made for c, h in zip(cell[at + 1 :], healthy[at + 1 :], strict=True)]
    return max((min(pair) for pair in pairwise(over)), default=0.0) > 0.2
