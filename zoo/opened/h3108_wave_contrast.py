# expect: healthy
# symptom: the loss falls a little and then stays far above zero, as if pairs were mixed or features collapsed
# axis: loss
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
STEPS, BATCH, TEMP = 300, 96, 0.3
KINDS, LENGTH = 8, 64


def signals(count, seed):
    """Waveforms of eight kinds (shape of the wave and rhythm), with free phase and level."""
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(0, KINDS, (count,), generator=g)
    t = torch.arange(LENGTH) / LENGTH
    freq = (2.0 + 0.9 * (kind // 2).float())[:, None] * (1 + 0.02 * torch.randn(count, 1, generator=g))
    phase = torch.rand(count, 1, generator=g)
    turn = (freq * t + phase) % 1.0
    saw, wave = 2 * turn - 1, torch.sin(2 * math.pi * turn)
    x = torch.where((kind % 2 == 0)[:, None], saw, wave)
    return x + 0.3 * torch.randn(x.shape, generator=g), kind


def view(x, gen):
    shift = torch.randint(0, LENGTH, (len(x), 1), generator=gen)
    at = (torch.arange(LENGTH)[None] + shift) % LENGTH
    out = x.gather(1, at) * (0.7 + 0.6 * torch.rand(len(x), 1, generator=gen))
    return out + 0.3 * torch.randn(out.shape, generator=gen)


class Encoder(nn.Module):
    def __init__(self, width=48, dim=32):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv1d(1, width, 7, padding=3, padding_mode="circular"),
            nn.GroupNorm(4, width),
            nn.ReLU(),
            nn.Conv1d(width, width, 5, stride=2, padding=2),
            nn.GroupNorm(4, width),
            nn.ReLU(),
            nn.Conv1d(width, width, 5, stride=2, padding=2),
            nn.ReLU(),
        )
        self.proj = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, dim))

    def features(self, x):
        return self.trunk(x[:, None]).mean(-1)

    def forward(self, x):
        return F.normalize(self.proj(self.features(x)), dim=1)


@torch.no_grad()
def retrieval(encoder, data, k=10):
    """Share of the k nearest embeddings that are of the same kind as the query."""
    z = encoder(data[0])
    near = (z @ z.t()).fill_diagonal_(-2).topk(k, dim=1).indices
    return (data[1][near] == data[1][:, None]).float().mean().item()


def pair_loss(a, b):
    """Each view has to find its partner among the other views of the batch, in both directions."""
    z = torch.cat([a, b])
    sims = (z @ z.t() / TEMP).fill_diagonal_(float("-inf"))
    n = len(a)
    partner = torch.cat([torch.arange(n) + n, torch.arange(n)])
    return F.cross_entropy(sims, partner)


def main():
    torch.manual_seed(9)
    gen = torch.Generator().manual_seed(10)
    train, test = signals(3000, 1), signals(800, 2)
    model = Encoder()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, STEPS, eta_min=5e-5)
    print(f"retrieval before training {retrieval(model, test):.3f}")
    for step in range(STEPS):
        x = train[0][torch.randint(0, len(train[0]), (BATCH,), generator=gen)]
        loss = pair_loss(model(view(x, gen)), model(view(x, gen)))
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(f"step {step:4d} loss {loss.item():.4f} (log of candidates {math.log(2 * BATCH - 1):.2f})")
        if step % 100 == 99:
            print(f"step {step:4d} retrieval {retrieval(model, test):.3f}")
    print(f"final loss {loss.item():.4f} retrieval {retrieval(model, test):.3f}")


if __name__ == "__main__":
    main()
