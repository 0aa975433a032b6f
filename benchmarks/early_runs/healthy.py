"""Small healthy trainings that look sick to somebody who knows only their loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from early_runs.recorder import Curves, recorded

STEPS = 500


def _net(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def _target(x: Tensor) -> Tensor:
    return torch.sin(2 * x[:, :1]) + x[:, 1:2] * x[:, 2:3]


def _regression(
    rows: int = 32,
    *,
    rate: Callable[[int], float] = lambda step: 1.0,
    base: float = 3e-3,
    scale: float = 1.0,
    noise: Callable[[torch.Generator, int, int], Tensor] | None = None,
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.Adam,
    hard: Callable[[int], float] = lambda step: 1.0,
    dropout: float = 0.0,
) -> Callable[[torch.Generator], None]:
    def go(g: torch.Generator) -> None:
        net = _net(6, 48, 48, 1)
        opt = optimizer(net.parameters(), lr=base)
        for step in range(STEPS):
            opt.param_groups[0]["lr"] = base * rate(step)
            x = torch.randn(rows, 6, generator=g) * hard(step)
            extra = noise(g, rows, step) if noise else 0.1 * torch.randn(rows, 1, generator=g)
            opt.zero_grad()
            loss = scale * F.mse_loss(F.dropout(net(x), dropout) if dropout else net(x), _target(x) + extra)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 100.0 * scale)
            opt.step()

    return go


def _cauchy(g: torch.Generator, rows: int) -> Tensor:
    normal = torch.randn(rows, 4, generator=g)
    return 0.3 * normal[:, :1] / normal[:, 1:].pow(2).mean(1, keepdim=True).sqrt()


def _outlier(g: torch.Generator, rows: int, step: int) -> Tensor:
    hard = torch.rand(rows, 1, generator=g) < 0.005
    return torch.where(hard, 12.0, 0.1) * torch.randn(rows, 1, generator=g)


def _density(g: torch.Generator) -> None:
    net = _net(2, 32, 4)
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    for _ in range(STEPS):
        x = torch.randn(64, 2, generator=g)
        y = torch.stack([x[:, 0] + 0.02 * torch.randn(64, generator=g), x.prod(1)], 1)
        mean, log = net(x).chunk(2, 1)
        opt.zero_grad()
        (0.5 * ((y - mean) / log.exp()).pow(2) + log).mean().backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        opt.step()


def _adversaries(g: torch.Generator) -> None:
    make, judge = _net(4, 32, 2), _net(2, 32, 1)
    one, two = (torch.optim.Adam(m.parameters(), lr=1e-3, betas=(0.5, 0.999)) for m in (make, judge))
    for _ in range(STEPS):
        real = torch.randn(64, 2, generator=g).sign() * 1.5 + 0.3 * torch.randn(64, 2, generator=g)
        fake = make(torch.randn(64, 4, generator=g))
        two.zero_grad()
        (F.softplus(-judge(real)).mean() + F.softplus(judge(fake.detach())).mean()).backward()
        two.step()
        one.zero_grad()
        F.softplus(-judge(fake)).mean().backward()
        one.step()


def _policy(critic: bool, growing: bool = False) -> Callable[[torch.Generator], None]:
    def go(g: torch.Generator) -> None:
        net, value = _net(4, 32, 3), _net(4, 32, 1)
        parameters = [*net.parameters(), *value.parameters()]
        opt = torch.optim.Adam(parameters, lr=3e-3)
        length = 4.0
        for _ in range(STEPS):
            x = torch.randn(32, 4, generator=g)
            log = net(x).log_softmax(1)
            action = torch.multinomial(log.exp().detach(), 1, generator=g)
            reward = (action[:, 0] == x[:, :3].argmax(1)).float() + 0.3 * torch.randn(32, generator=g)
            if growing:
                length = 0.99 * length + 0.01 * (4 + 20 * float(reward.mean().clamp(0)))
                reward = reward * length
            base = value(x)[:, 0]
            gain = reward - base.detach() if critic else reward
            loss = -(log.gather(1, action)[:, 0] * gain).mean()
            if critic:
                loss = loss + F.mse_loss(base, reward)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 0.5)
            opt.step()

    return go


def _values(g: torch.Generator) -> None:
    """Q-learning against a target network: the loss rises while the values grow."""
    net, late = _net(4, 48, 3), _net(4, 48, 3)
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    for step in range(STEPS):
        if step % 50 == 0:
            late.load_state_dict(net.state_dict())
        x = torch.randn(64, 4, generator=g)
        action = torch.randint(3, (64, 1), generator=g)
        after = 0.9 * x + 0.3 * (action - 1)
        reward = -after[:, :1].abs() + 1
        with torch.no_grad():
            goal = reward + 0.9 * late(after).max(1, keepdim=True).values
        opt.zero_grad()
        F.smooth_l1_loss(net(x).gather(1, action), goal).backward()
        opt.step()


def _annealed(g: torch.Generator) -> None:
    encode, decode = _net(12, 48, 8), _net(4, 48, 12)
    opt = torch.optim.Adam([*encode.parameters(), *decode.parameters()], lr=3e-3)
    basis = torch.randn(3, 12, generator=g)
    for step in range(STEPS):
        x = torch.tanh(torch.randn(64, 3, generator=g) @ basis)
        mean, log = encode(x).chunk(2, 1)
        back = decode(mean + log.exp() * torch.randn(64, 4, generator=g))
        kl = (0.5 * (mean**2 + (2 * log).exp() - 1) - log).sum(1).mean()
        opt.zero_grad()
        ((back - x).pow(2).sum(1).mean() + min(1.0, step / 250) * kl).backward()
        opt.step()


def _classes(*, blocks: bool = False, epochs: bool = False, wrong: float = 0.0, rows: int = 32) -> Callable[..., None]:
    def go(g: torch.Generator) -> None:
        net = _net(12, 48, 8)
        opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
        centres = torch.randn(8, 12, generator=g)
        fixed = torch.randint(8, (256,), generator=g)
        noise = torch.randn(256, 12, generator=g)
        for step in range(STEPS):
            at = torch.randperm(256, generator=g)[:rows] if not epochs else torch.arange(rows) + rows * step % 256
            y = fixed[at] if epochs else torch.randint(8, (rows,), generator=g)
            if blocks:
                y = (y % 2) + 2 * ((step // 25) % 4)
            x = centres[y] + (noise[at] if epochs else torch.randn(rows, 12, generator=g))
            y = torch.where(torch.rand(rows, generator=g) < wrong, torch.randint(8, (rows,), generator=g), y)
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()

    return go


def _sawtooth(step: int) -> float:
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (step % 120) / 120))


def _triangle(step: int) -> float:
    return 0.1 + 9.9 * abs(1 - (step % 100) / 50)


def _one_cycle(step: int) -> float:
    return 0.04 + 8 * min(step / 150, max(0.0, (STEPS - step) / 350))


def _reweighted(weight: Callable[[int], float], extra: Callable[[int], float]) -> Callable[[torch.Generator], None]:
    """Two targets: the weights of their losses change on the way."""

    def go(g: torch.Generator) -> None:
        net = _net(6, 48, 2)
        opt = torch.optim.Adam(net.parameters(), lr=3e-3)
        for step in range(STEPS):
            x = torch.randn(32, 6, generator=g)
            out = net(x)
            one = F.mse_loss(out[:, :1], _target(x) + 0.1 * torch.randn(32, 1, generator=g))
            two = F.mse_loss(out[:, 1:], torch.cos(2 * x[:, 3:4]) + 0.1 * torch.randn(32, 1, generator=g))
            opt.zero_grad()
            (weight(step) * one + extra(step) * two).backward()
            opt.step()

    return go


def _proximal(g: torch.Generator) -> None:
    """PPO: four passes over each batch of experience, a clipped ratio, a critic and entropy."""
    net, value = _net(4, 32, 3), _net(4, 32, 1)
    parameters = [*net.parameters(), *value.parameters()]
    opt = torch.optim.Adam(parameters, lr=2e-3)
    for _ in range(STEPS // 4):
        x = torch.randn(128, 4, generator=g)
        with torch.no_grad():
            old = net(x).log_softmax(1)
            action = torch.multinomial(old.exp(), 1, generator=g)
            reward = 3.0 * (action[:, 0] == x[:, :3].argmax(1)).float() + torch.randn(128, generator=g)
            gain = reward - value(x)[:, 0]
            gain = (gain - gain.mean()) / gain.std()
        for part in torch.randperm(128, generator=g).chunk(4):
            log = net(x[part]).log_softmax(1)
            ratio = (log - old[part]).gather(1, action[part])[:, 0].exp()
            clipped = torch.min(ratio * gain[part], ratio.clamp(0.8, 1.2) * gain[part]).mean()
            entropy = -(log.exp() * log).sum(1).mean()
            opt.zero_grad()
            (0.5 * F.mse_loss(value(x[part])[:, 0], reward[part]) - clipped - 0.01 * entropy).backward()
            nn.utils.clip_grad_norm_(parameters, 0.5)
            opt.step()


def _views(temperature: Callable[[int], float]) -> Callable[[torch.Generator], None]:
    def go(g: torch.Generator) -> None:
        net, basis = _net(16, 48, 12), torch.randn(6, 16, generator=g)
        opt = torch.optim.Adam(net.parameters(), lr=2e-3)
        for step in range(STEPS):
            things = torch.randn(32, 6, generator=g) @ basis
            one, two = (F.normalize(net(things + 0.7 * torch.randn(32, 16, generator=g)), dim=1) for _ in range(2))
            opt.zero_grad()
            F.cross_entropy(one @ two.T / temperature(step), torch.arange(32)).backward()
            opt.step()

    return go


def _parity(g: torch.Generator) -> None:
    """Stands at the guess for long, then falls."""
    net = _net(12, 64, 2)
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    for _ in range(STEPS):
        x = torch.randn(64, 12, generator=g).sign()
        opt.zero_grad()
        F.cross_entropy(net(x), (x[:, :3].prod(1) > 0).long()).backward()
        opt.step()


def _tuned(g: torch.Generator) -> None:
    """Goes on with a trained net and a small rate: there is nothing left to learn."""
    net, centres = _net(12, 48, 8), torch.randn(8, 12, generator=g)
    for rate, steps in ((3e-3, 400), (2e-5, STEPS)):
        opt = torch.optim.AdamW(net.parameters(), lr=rate)
        for _ in range(steps):
            y = torch.randint(8, (16,), generator=g)
            loss = F.cross_entropy(net(centres[y] + 1.2 * torch.randn(16, 12, generator=g)), y)
            opt.zero_grad()
            if rate < 1e-3:
                loss.backward()
            else:
                torch.autograd.backward(loss)  # before the run, so not recorded
            opt.step()


def _edge(g: torch.Generator) -> None:
    """Whole data at a rate at the edge of stability."""
    net, x = _net(6, 48, 1), torch.randn(64, 6, generator=g)
    opt = torch.optim.SGD(net.parameters(), lr=0.15)
    for _ in range(STEPS):
        opt.zero_grad()
        F.mse_loss(net(x), _target(x)).backward()
        opt.step()


def _attacked(g: torch.Generator) -> None:
    """Adversarial training: the attack grows over the first 300 steps."""
    net, centres = _net(12, 48, 8), torch.randn(8, 12, generator=g)
    opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
    for step in range(STEPS):
        y = torch.randint(8, (32,), generator=g)
        x = (centres[y] + 0.7 * torch.randn(32, 12, generator=g)).requires_grad_()
        (away,) = torch.autograd.grad(F.cross_entropy(net(x), y), x)
        x = (x + 0.6 * min(1.0, step / 300) * away.sign()).detach()
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()


def _longer(g: torch.Generator) -> None:
    """A sum over sequences that get longer every hundred steps."""
    net = nn.GRU(4, 32, batch_first=True)
    head = nn.Linear(32, 4)
    opt = torch.optim.Adam([*net.parameters(), *head.parameters()], lr=3e-3)
    for step in range(STEPS):
        x = torch.randn(16, 6 + 3 * (step // 100), 4, generator=g).cumsum(1) / 3
        opt.zero_grad()
        ((head(net(x[:, :-1])[0]) - x[:, 1:]).pow(2).sum((1, 2)).mean()).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()


def _smoothed(g: torch.Generator) -> None:
    """Label smoothing, dropout and mixed inputs are switched on after 200 steps."""
    net, centres = _net(12, 48, 8), torch.randn(8, 12, generator=g)
    opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
    for step in range(STEPS):
        y = torch.randint(8, (32,), generator=g)
        x = centres[y] + torch.randn(32, 12, generator=g)
        late = step >= 200
        opt.zero_grad()
        F.cross_entropy(net(F.dropout(x, 0.3) if late else x), y, label_smoothing=0.1 if late else 0.0).backward()
        opt.step()


FAMILIES: dict[str, Callable[[torch.Generator], None]] = {
    "plain": _regression(),
    "one row": _regression(1, base=1e-3),
    "four rows, SGD": _regression(4, base=0.01, optimizer=torch.optim.SGD),
    "cyclical rate": _regression(rate=_triangle, base=1e-3),
    "warm restarts": _regression(rate=_sawtooth, base=5e-3),
    "one cycle": _regression(rate=_one_cycle, base=2e-3),
    "heavy tails": _regression(noise=lambda g, rows, step: _cauchy(g, rows)),
    "single outliers": _regression(noise=_outlier),
    "tiny loss": _regression(scale=1e-7),
    "huge loss": _regression(scale=1e6),
    "curriculum": _regression(hard=lambda step: 0.3 + 0.2 * (step // 80)),
    "dropout": _regression(dropout=0.5),
    "density": _density,
    "adversaries": _adversaries,
    "policy": _policy(False),
    "actor and critic": _policy(True),
    "growing episodes": _policy(True, growing=True),
    "values": _values,
    "annealed": _annealed,
    "small epochs": _classes(epochs=True),
    "wrong labels": _classes(wrong=0.4),
    "one row, classes": _classes(rows=1),
    "eight rows, classes": _classes(rows=8),
    "a weight that grows": _reweighted(lambda step: 1.0 + 9.0 * min(1.0, step / 400), lambda step: 1.0),
    "a weight that jumps": _reweighted(lambda step: 1.0 if step < 200 else 5.0, lambda step: 1.0),
    "a term switched on": _reweighted(lambda step: 1.0, lambda step: 0.0 if step < 150 else 1.0),
    "proximal policy": _proximal,
    "contrast": _views(lambda step: 0.2),
    "contrast that sharpens": _views(lambda step: max(0.1, 0.5 - step / 1000)),
    "parity": _parity,
    "tuned": _tuned,
    "edge of stability": _edge,
    "attacked": _attacked,
    "longer sequences": _longer,
    "smoothed late": _smoothed,
}

DOUBTFUL: dict[str, Callable[[torch.Generator], None]] = {"classes in blocks": _classes(blocks=True)}
"""Told apart: data in blocks are what the cause `unshuffled-data` is about, and some train so on purpose."""


def train(family: str, seed: int) -> list[Curves]:
    """The curves of each optimizer."""
    torch.manual_seed(seed)
    g = torch.Generator().manual_seed(50 + seed)
    return recorded(lambda: (FAMILIES | DOUBTFUL)[family](g))
