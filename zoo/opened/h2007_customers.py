# expect: healthy
# symptom: looks like collapse and a dead branch: negative loss close to -1, no negatives, a teacher with no gradients, no plateau to speak of
# axis: none
# mended: none
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(2)
torch.set_num_threads(1)

N_EVENTS, SEQ, CLASSES = 120, 40, 8
STEPS, BATCH = 400, 256


class Customers:
    """Synthetic event histories; the segment label is used for probing only."""

    def __init__(self, n):
        self.segment = torch.randint(0, CLASSES, (n,))
        g = torch.Generator().manual_seed(77)
        prefs = torch.softmax(torch.randn(CLASSES, N_EVENTS, generator=g) * 1.6, 1)
        own = torch.softmax(torch.randn(n, N_EVENTS) * 1.0, 1)
        self.events = torch.multinomial(0.6 * prefs[self.segment] + 0.4 * own, SEQ, replacement=True)

    def view(self, idx):
        keep = torch.rand(len(idx), SEQ).argsort(1)[:, : SEQ // 2]
        ev = self.events[idx].gather(1, keep)
        flip = torch.rand(ev.shape) < 0.05
        return torch.where(flip, torch.randint(0, N_EVENTS, ev.shape), ev)


def mlp(i, h, o):
    return nn.Sequential(nn.Linear(i, h), nn.BatchNorm1d(h), nn.ReLU(inplace=True), nn.Linear(h, o))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(N_EVENTS, 96, mode="mean")
        self.body = nn.Sequential(nn.Linear(96, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 64))
        self.project = mlp(64, 128, 48)

    def encode(self, ev):
        return self.body(self.bag(ev))

    def forward(self, ev):
        return self.project(self.encode(ev))


class BYOL:
    def __init__(self):
        self.online = Net()
        self.teacher = copy.deepcopy(self.online)
        for p in self.teacher.parameters():
            p.requires_grad = False
        self.predict = mlp(48, 96, 48)
        params = list(self.online.parameters()) + list(self.predict.parameters())
        self.opt = torch.optim.AdamW(params, lr=2e-3, weight_decay=1e-4)
        self.sched = torch.optim.lr_scheduler.OneCycleLR(self.opt, max_lr=2e-3, total_steps=STEPS, pct_start=0.1)

    def loss(self, a, b):
        pa, pb = self.predict(self.online(a)), self.predict(self.online(b))
        with torch.no_grad():
            ta, tb = self.teacher(a), self.teacher(b)
        return -0.5 * (F.cosine_similarity(pa, tb).mean() + F.cosine_similarity(pb, ta).mean())

    @torch.no_grad()
    def ema(self, step):
        tau = 1 - (1 - 0.98) * (math.cos(math.pi * step / STEPS) + 1) / 2
        for t, o in zip(self.teacher.parameters(), self.online.parameters()):
            t.mul_(tau).add_(o, alpha=1 - tau)
        return tau

    def step(self, a, b, step):
        loss = self.loss(a, b)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        self.sched.step()
        return loss.item(), self.ema(step)


def probe(net, train, test):
    """kNN-free linear probe, closed form ridge on frozen features."""
    net.eval()
    with torch.no_grad():
        z, zt = net.encode(train.events), net.encode(test.events)
        std = F.normalize(z, dim=1).std(0).mean().item()
        mu, sd = z.mean(0), z.std(0) + 1e-6
        z = torch.cat([(z - mu) / sd, torch.ones(len(z), 1)], 1)
        zt = torch.cat([(zt - mu) / sd, torch.ones(len(zt), 1)], 1)
        y = F.one_hot(train.segment, CLASSES).float()
        w = torch.linalg.solve(z.T @ z + 1.0 * torch.eye(z.size(1)), z.T @ y)
        acc = ((zt @ w).argmax(1) == test.segment).float().mean().item()
    net.train()
    return acc, std


def main():
    train, test = Customers(6000), Customers(1500)
    algo = BYOL()
    print("probe before training acc %.3f std %.4f" % probe(algo.online, train, test))
    for step in range(STEPS):
        idx = torch.randint(0, len(train.segment), (BATCH,))
        loss, tau = algo.step(train.view(idx), train.view(idx), step)
        if step % 20 == 0:
            print(f"step {step} loss {loss:.4f} tau {tau:.4f}")
        if (step + 1) % 100 == 0:
            print("   probe acc %.3f feature std %.4f (1/sqrt(d) = 0.125)" % probe(algo.online, train, test))


if __name__ == "__main__":
    main()
