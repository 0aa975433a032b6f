# expect: healthy
# symptom: resembles a run whose optimizer state is lost again and again: sawtooth loss, sudden jumps whenever the client changes
# axis: harness
"""Federated averaging over eight hospitals with skewed label shares.

Each round every site trains a fresh local SGD from the global weights, and the server
averages the results, weighted by the number of patients.
"""

import copy
import time

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
SITES, CLASSES, FEATS = 8, 6, 40


class Cohorts:
    def __init__(self, seed=4):
        self.rng = np.random.default_rng(seed)
        self.centres = self.rng.normal(0, 1.0, (CLASSES, 2, 12))
        self.mix = self.rng.normal(0, 1 / np.sqrt(12), (12, FEATS))
        self.offset = self.rng.normal(0, 0.15, (SITES, FEATS))

    def draw(self, n, share, site=None):
        y = self.rng.choice(CLASSES, n, p=share)
        mode = self.rng.integers(0, 2, n)
        latent = 1.6 * self.centres[y, mode] + self.rng.normal(0, 0.55, (n, 12))
        x = np.tanh(latent) @ self.mix + self.rng.normal(0, 0.1, (n, FEATS))
        if site is not None:
            x = x + self.offset[site]
        return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


def build_net():
    return nn.Sequential(nn.Linear(FEATS, 256), nn.ELU(), nn.Linear(256, 256), nn.ELU(), nn.Linear(256, CLASSES))


def local_epoch(net, x, y, lr, gen, steps, batch=128):
    opt = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.5)
    losses = []
    for _ in range(steps):
        idx = torch.randint(len(x), (batch,), generator=gen)
        loss = nn.functional.cross_entropy(net(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def average(models, weights):
    total = float(sum(weights))
    out = copy.deepcopy(models[0].state_dict())
    for k in out:
        out[k] = sum(m.state_dict()[k] * (w / total) for m, w in zip(models, weights))
    return out


@torch.no_grad()
def score(net, x, y):
    logits = net(x)
    return nn.functional.cross_entropy(logits, y).item(), (logits.argmax(1) == y).float().mean().item()


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    co = Cohorts()
    data = []
    for s in range(SITES):
        share = co.rng.dirichlet(np.full(CLASSES, 0.6))
        data.append(co.draw(int(co.rng.integers(1500, 5000)), share, s))
    vx, vy = co.draw(3000, np.full(CLASSES, 1 / CLASSES))
    net = build_net()
    t0, step, lr = time.time(), 0, 0.08
    for rnd in range(1, 13):
        locals_, sizes = [], []
        for s in range(SITES):
            site_net = copy.deepcopy(net)
            losses = local_epoch(site_net, *data[s], lr, gen, steps=9)
            step += len(losses)
            print(f"step {step:4d} round {rnd} site {s} first {losses[0]:.3f} last {losses[-1]:.3f}")
            locals_.append(site_net)
            sizes.append(len(data[s][0]))
        net.load_state_dict(average(locals_, sizes))
        loss, acc = score(net, vx, vy)
        print(f"round {rnd}: global validation loss {loss:.4f} accuracy {acc:.3f}")
        lr *= 0.97
    print(f"{step} local steps in {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
