# expect: healthy
# symptom: the contrastive loss rises over the first tens of steps, one encoder never gets gradients and its weights are written in place under no_grad (resembles divergence, a detached branch, or a parameter missing from the optimizer)
# axis: model
# cause: none
# says: none
# onset_step: none
# fix: none
# mended: no
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


class Spectra:
    """Each item is a mixture of peaks; a view shifts, scales and hides parts of it."""

    def __init__(self, seed, bins=64, kinds=12):
        self.gen = torch.Generator().manual_seed(seed)
        base = torch.Generator().manual_seed(55)
        self.centres = torch.rand(kinds, 4, generator=base) * (bins - 8) + 4
        self.grid = torch.arange(bins).float()

    def rand(self, *shape):
        return torch.rand(*shape, generator=self.gen)

    def items(self, n):
        kind = torch.randint(len(self.centres), (n,), generator=self.gen)
        return kind, self.centres[kind] + 1.2 * (self.rand(n, 4) - 0.5), 0.4 + self.rand(n, 4)

    def view(self, item):
        _, mu, amp = item
        n = len(mu)
        mu = mu + 2 * (self.rand(n, 1) - 0.5)
        x = (amp[..., None] * torch.exp(-0.5 * ((self.grid - mu[..., None]) / 1.5) ** 2)).sum(1)
        x = x * (0.7 + 0.6 * self.rand(n, 1)) + 0.1 * (self.rand(n, len(self.grid)) - 0.5)
        start = (self.rand(n, 1) * len(self.grid)).floor()
        return x * ~((self.grid >= start) & (self.grid < start + 8))


def encoder():
    return nn.Sequential(
        nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 32)
    )


class Contrast(nn.Module):
    def __init__(self, capacity=2048, momentum=0.99, tau=0.1):
        super().__init__()
        self.q = encoder()
        self.k = copy.deepcopy(self.q)
        self.k.requires_grad_(False)
        self.capacity, self.momentum, self.tau = capacity, momentum, tau
        self.queue = []

    @torch.no_grad()
    def follow(self):
        for a, b in zip(self.k.parameters(), self.q.parameters()):
            a.lerp_(b, 1 - self.momentum)

    def forward(self, x1, x2):
        z = F.normalize(self.q(x1), dim=-1)
        with torch.no_grad():
            self.follow()
            key = F.normalize(self.k(x2), dim=-1)
        pos = (z * key).sum(-1, keepdim=True)
        neg = z @ (torch.cat(self.queue) if self.queue else key.roll(1, 0)).T
        self.queue.append(key)
        while sum(map(len, self.queue)) > self.capacity:
            self.queue.pop(0)
        return F.cross_entropy(torch.cat([pos, neg], 1) / self.tau, torch.zeros(len(z), dtype=torch.long))


@torch.no_grad()
def neighbour_accuracy(model, data):
    model.eval()
    item = data.items(600)
    z = F.normalize(model.q(data.view(item)), dim=-1)
    sim = z @ z.T - 2 * torch.eye(len(z))
    model.train()
    return (item[0][sim.argmax(1)] == item[0]).float().mean().item()


def main():
    torch.manual_seed(14)
    data, probe = Spectra(1), Spectra(2)
    model = Contrast()
    opt = torch.optim.SGD(model.q.parameters(), lr=0.06, momentum=0.9, weight_decay=1e-4)
    print(f"start knn {neighbour_accuracy(model, probe):.3f}")
    for step in range(600):
        item = data.items(64)
        loss = model(data.view(item), data.view(item))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f} queue {sum(map(len, model.queue))}")
        if step % 200 == 199:
            print(f"step {step} knn {neighbour_accuracy(model, probe):.3f}")


if __name__ == "__main__":
    main()
