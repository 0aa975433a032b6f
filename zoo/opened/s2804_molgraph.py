# expect: sick
# symptom: validation error falls for a few hundred steps, then after the batch is enlarged the loss climbs in a few steps to astronomic values and becomes nan
# axis: harness
# cause: after step 250 the gradients of eight micro-batches are summed without dividing the loss by the number of accumulation steps, so the effective learning rate is eight times larger and plain SGD diverges
# says: (divid|scal|normali[sz]|averag|mean|1 ?/ ?|\/ ?accum)\w*.{0,120}(accum|micro.?batch)|(accum|micro.?batch)\w*.{0,160}(divid|scal|normali[sz]|averag|(eight|8|n|accum\w*).?(times|x\b|fold)|summ?(ed|ing|s)?\b)
# onset_step: 251
# fix: divide the loss by the number of accumulation steps before backward
# mended: yes
"""Message passing network on random molecule-like graphs, regression of an energy.

The batch is enlarged late in training (more micro-batches per update) in order to
lower the gradient noise, instead of decaying the learning rate.
"""

import math
import os
import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn

torch.set_num_threads(1)


@dataclass
class Hyper:
    graphs: int = 3000
    nodes: int = 10
    kinds: int = 5
    width: int = 48
    rounds: int = 3
    micro_batch: int = 16
    lr: float = 0.05
    momentum: float = 0.9
    small_until: int = 250
    late_accum: int = 8
    updates: int = 560


def sample_graphs(h: Hyper, n: int, gen: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    kind = torch.randint(0, h.kinds, (n, h.nodes), generator=gen)
    pos = torch.randn(n, h.nodes, 3, generator=gen)
    dist = torch.cdist(pos, pos)
    adj = ((dist < 1.6) & (dist > 0)).float()
    charge = torch.tensor([-1.0, -0.4, 0.1, 0.6, 1.0])
    q = charge[kind]
    pair = q[:, :, None] * q[:, None, :] * adj
    degree = adj.sum(-1)
    energy = pair.sum((1, 2)) / 2 + 0.3 * (q * degree).sum(1) + 0.5 * (degree > 4).float().sum(1)
    energy = energy + 0.1 * torch.randn(n, generator=gen)
    return kind, adj, energy


class Round(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.message = nn.Linear(width, width)
        self.update = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        m = adj @ torch.tanh(self.message(x)) / 3.0
        return x + self.update(torch.cat([x, m], -1))


class EnergyNet(nn.Module):
    def __init__(self, h: Hyper):
        super().__init__()
        self.embed = nn.Embedding(h.kinds, h.width)
        self.rounds = nn.ModuleList(Round(h.width) for _ in range(h.rounds))
        self.readout = nn.Sequential(nn.Linear(h.width, h.width), nn.SiLU(), nn.Linear(h.width, 1))

    def forward(self, kind: Tensor, adj: Tensor) -> Tensor:
        x = self.embed(kind)
        for r in self.rounds:
            x = r(x, adj)
        return self.readout(x).squeeze(-1).mean(-1)


def batches(n: int, size: int, gen: torch.Generator):
    while True:
        order = torch.randperm(n, generator=gen)
        for i in range(0, n - size + 1, size):
            yield order[i : i + size]


def main() -> None:
    h = Hyper()
    gen = torch.Generator().manual_seed(42)
    torch.manual_seed(42)
    kind, adj, energy = sample_graphs(h, h.graphs, gen)
    vkind, vadj, venergy = sample_graphs(h, 400, gen)
    mu, sd = energy.mean(), energy.std()
    target, vtarget = (energy - mu) / sd, (venergy - mu) / sd
    net = EnergyNet(h)
    opt = torch.optim.SGD(net.parameters(), lr=h.lr, momentum=h.momentum, nesterov=True)
    feed = batches(h.graphs, h.micro_batch, gen)
    average = os.environ.get("MENDED") == "1"
    began = time.time()
    seen = 0.0
    for update in range(1, h.updates + 1):
        accum = 1 if update <= h.small_until else h.late_accum
        opt.zero_grad()
        total = 0.0
        for _ in range(accum):
            idx = next(feed)
            loss = nn.functional.mse_loss(net(kind[idx], adj[idx]), target[idx])
            total += loss.item() / accum
            if average:
                loss = loss / accum
            loss.backward()
        opt.step()
        seen += total
        if update % 10 == 0:
            print(f"update {update:4d}  micro-batches {accum}  train mse {seen / 10:.4f}")
            seen = 0.0
        if update % 50 == 0:
            with torch.no_grad():
                rmse = math.sqrt(nn.functional.mse_loss(net(vkind, vadj), vtarget).item())
            print(f"    valid rmse {rmse:.4f}   elapsed {time.time() - began:.1f}s")


if __name__ == "__main__":
    main()
