# expect: healthy
# symptom: the loss rises for the first steps, and again later after a fall, as if training diverged
# axis: data
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(53)
STEPS, BATCH, QUEUE, TEMP, KINDS, DIM = 300, 32, 1024, 0.15, 12, 48
MIXER = torch.randn(16, DIM, generator=torch.Generator().manual_seed(0))
CENTRES = 1.5 * torch.randn(KINDS, 16, generator=torch.Generator().manual_seed(1))


def items(n, g):
    kind = torch.randint(0, KINDS, (n,), generator=g)
    latent = CENTRES[kind] + 0.7 * torch.randn(n, 16, generator=g)
    return latent, kind


def view(latent, g):
    x = torch.tanh(latent @ MIXER / 4)
    keep = (torch.rand(x.shape, generator=g) > 0.25).float()
    nuisance = 1.5 * torch.randn(len(x), 8, generator=g)
    return torch.cat([x * keep + 0.1 * torch.randn(x.shape, generator=g), nuisance], 1)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(DIM + 8, 96), nn.ReLU(), nn.Linear(96, 64), nn.ReLU())
        self.proj = nn.Linear(64, 24)

    def forward(self, x):
        return F.normalize(self.proj(self.body(x)), dim=1)


class KeyQueue:
    """Holds the keys of earlier batches; empty at the start, so the task gets harder as it fills."""

    def __init__(self, size):
        self.size, self.keys = size, None

    def push(self, k):
        self.keys = k if self.keys is None else torch.cat([k, self.keys])[: self.size]


@torch.no_grad()
def neighbour_accuracy(net, seed=77):
    g = torch.Generator().manual_seed(seed)
    (la, ya), (lb, yb) = items(600, g), items(300, g)
    a, b = net(view(la, g)), net(view(lb, g))
    votes = ya[(b @ a.t()).topk(9, dim=1).indices]
    return (votes.mode(1).values == yb).float().mean().item()


def main():
    g = torch.Generator().manual_seed(2)
    query = Encoder()
    key = copy.deepcopy(query).requires_grad_(False)
    queue = KeyQueue(QUEUE)
    opt = torch.optim.AdamW(query.parameters(), lr=2e-3, weight_decay=1e-3)
    print(f"before training: neighbour accuracy {neighbour_accuracy(query):.3f}")
    for step in range(STEPS):
        latent, _ = items(BATCH, g)
        q = query(view(latent, g))
        with torch.no_grad():
            for kp, qp in zip(key.parameters(), query.parameters()):
                kp.lerp_(qp, 0.05)
            k = key(view(latent, g))
        pool = k if queue.keys is None else torch.cat([k, queue.keys])
        loss = F.cross_entropy(q @ pool.t() / TEMP, torch.arange(BATCH))
        opt.zero_grad()
        loss.backward()
        opt.step()
        queue.push(k)
        if step in (1, 2, 4, 8, 16) or step % 30 == 0:
            print(f"step {step:4d} pool {len(pool):4d} loss {loss.item():.4f}")
    print(f"final loss {loss.item():.4f} neighbour accuracy {neighbour_accuracy(query):.3f}")


if __name__ == "__main__":
    main()
