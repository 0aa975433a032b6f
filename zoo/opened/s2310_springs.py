# expect: sick
# symptom: the loss goes down at first and then stays at a high plateau; the model explains only a part of the accelerations however long it trains
# axis: model
# cause: the message aggregation uses agg[dst] += msg, which does not accumulate over repeated indices, so each node keeps only one of its neighbours' messages instead of the sum
# says: (index|\+=|scatter|aggregat|duplicate|repeated|messages?|neighbou?r|edges?).{0,220}(not (accumulat|sum|add)|n't (accumulat|sum|add)|overwrit|only (one|the last|a single|keeps|last)|last (write|one|message|edge|neighbou?r)|los[et]|dropp|discard|duplicate|non-accumulat|without accumulat|instead of (the sum|summ|accumulat|add)|index_add|scatter_add)
# onset_step: 1
# fix: use index_add_ over the destination index
# mended: yes
"""Learned simulator: a message-passing network that predicts accelerations of charged beads tied by springs."""

import math
import os

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(42)
MENDED = os.environ.get("MENDED") == "1"

N_BEADS = 9
BATCH = 24
N_STEPS = 600


def sample_systems(n, gen):
    """Random positions, velocities, charges and spring lists, with exact accelerations."""
    pos = torch.randn(n, N_BEADS, 2, generator=gen)
    vel = 0.5 * torch.randn(n, N_BEADS, 2, generator=gen)
    charge = torch.where(torch.rand(n, N_BEADS, generator=gen) < 0.5, -1.0, 1.0)
    linked = torch.rand(n, N_BEADS, N_BEADS, generator=gen) < 0.35
    linked = torch.triu(linked, 1)
    linked = linked | linked.transpose(1, 2)
    delta = pos[:, None, :, :] - pos[:, :, None, :]
    dist = delta.square().sum(-1).add(0.05).sqrt()
    unit = delta / dist[..., None]
    pull = 0.8 * (dist - 1.0)
    coulomb = -0.4 * charge[:, :, None] * charge[:, None, :] / (dist.square() + 0.3)
    force = ((pull + coulomb) * linked)[..., None] * unit
    acc = force.sum(2) - 0.3 * vel
    return pos, vel, charge, linked, acc


def to_graph(pos, vel, charge, linked):
    n = pos.shape[0]
    b, i, j = linked.nonzero(as_tuple=True)
    dst, src = b * N_BEADS + i, b * N_BEADS + j
    flat_pos = pos.reshape(n * N_BEADS, 2)
    nodes = torch.cat([vel.reshape(-1, 2), charge.reshape(-1, 1)], -1)
    rel = flat_pos[src] - flat_pos[dst]
    edges = torch.cat([rel, rel.norm(dim=-1, keepdim=True)], -1)
    return nodes, edges, src, dst


def mlp(*sizes):
    layers = []
    for a, b in zip(sizes[:-1], sizes[1:]):
        layers += [nn.Linear(a, b), nn.SiLU()]
    return nn.Sequential(*layers[:-1])


class Interaction(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.edge_fn = mlp(3 * width, width, width)
        self.node_fn = mlp(2 * width, width, width)

    def forward(self, h, e, src, dst):
        msg = self.edge_fn(torch.cat([h[src], h[dst], e], -1))
        agg = torch.zeros_like(h)
        if MENDED:
            agg.index_add_(0, dst, msg)
        else:
            agg[dst] += msg
        return h + self.node_fn(torch.cat([h, agg], -1)), e + msg


class Simulator(nn.Module):
    def __init__(self, width=48, rounds=2):
        super().__init__()
        self.node_in = mlp(3, width, width)
        self.edge_in = mlp(3, width, width)
        self.rounds = nn.ModuleList(Interaction(width) for _ in range(rounds))
        self.read = mlp(width, width, 2)

    def forward(self, nodes, edges, src, dst):
        h, e = self.node_in(nodes), self.edge_in(edges)
        for r in self.rounds:
            h, e = r(h, e, src, dst)
        return self.read(h)


train_gen = torch.Generator().manual_seed(1)
test_systems = sample_systems(200, torch.Generator().manual_seed(2))
test_graph, test_acc = to_graph(*test_systems[:4]), test_systems[4].reshape(-1, 2)
scale = test_acc.std()

model = Simulator()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
sched = torch.optim.lr_scheduler.LambdaLR(
    opt, lambda s: min(1.0, (s + 1) / 50) * (0.05 + 0.475 * (1 + math.cos(math.pi * s / N_STEPS)))
)

for step in range(1, N_STEPS + 1):
    pos, vel, charge, linked, acc = sample_systems(BATCH, train_gen)
    pred = model(*to_graph(pos, vel, charge, linked))
    loss = ((pred - acc.reshape(-1, 2)) / scale).square().mean()
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    opt.step()
    sched.step()
    if step % 25 == 0 or step == 1:
        print(f"step {step}: mse {loss.item():.4f}")
    if step % 150 == 0:
        with torch.no_grad():
            err = (model(*test_graph) - test_acc).square().mean() / test_acc.var()
        print(f"  test: explained variance {1 - err.item():.3f}")
