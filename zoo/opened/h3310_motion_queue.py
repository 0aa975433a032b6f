# expect: healthy
# symptom: contrastive loss rises for many steps while the negative queue fills; resembles a divergence
# axis: none
"""Contrastive pretraining on motion-sensor windows with a momentum encoder and a growing queue of negatives."""

import copy

import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(23)

CLASSES, CHANNELS, LENGTH, DIM, BATCH = 12, 3, 48, 32, 32
STEPS, QUEUE, TEMP, MOMENTUM = 300, 2048, 0.2, 0.97


class Motion:
    """Every class has its own frequencies and axis mix; windows differ in phase, tempo, gain and noise."""

    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)
        cg = torch.Generator().manual_seed(9)
        self.freq = 1.5 + 7 * torch.rand(CLASSES, 2, generator=cg)
        self.mix = torch.randn(CLASSES, CHANNELS, 2, generator=cg)

    def windows(self, n):
        y = torch.randint(0, CLASSES, (n,), generator=self.g)
        t = torch.linspace(0, 6.28, LENGTH)
        tempo = 0.95 + 0.1 * torch.rand(n, 1, 1, generator=self.g)
        phase = 6.28 * torch.rand(n, 2, 1, generator=self.g)
        wave = torch.sin(self.freq[y][:, :, None] * tempo * t + phase)
        x = torch.einsum("nck,nkt->nct", self.mix[y], wave)
        return x + 1.1 * torch.randn(n, CHANNELS, LENGTH, generator=self.g), y

    def augment(self, x):
        n = len(x)
        gain = 0.7 + 0.6 * torch.rand(n, 1, 1, generator=self.g)
        shift = int(torch.randint(0, LENGTH, (1,), generator=self.g))
        noise = 0.4 * torch.randn(x.shape, generator=self.g)
        return torch.roll(x, shift, -1) * gain + noise


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(CHANNELS, 32, 7, 2, 3),
            nn.GroupNorm(4, 32),
            nn.ReLU(),
            nn.Conv1d(32, 64, 5, 2, 2),
            nn.GroupNorm(4, 64),
            nn.ReLU(),
        )
        self.proj = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, DIM))

    def features(self, x):
        h = self.body(x)
        return torch.cat([h.mean(-1), h.amax(-1)], 1)

    def forward(self, x):
        return F.normalize(self.proj(self.features(x)), dim=1)


@torch.no_grad()
def knn_accuracy(enc, k=9):
    data = Motion(700)
    (xb, yb), (xq, yq) = data.windows(800), data.windows(300)
    fb, fq = F.normalize(enc.features(xb), dim=1), F.normalize(enc.features(xq), dim=1)
    votes = yb[(fq @ fb.t()).topk(k, dim=1).indices]
    return (votes.mode(1).values == yq).float().mean().item()


def main():
    data = Motion(1)
    query = Encoder()
    key = copy.deepcopy(query).requires_grad_(False)
    opt = torch.optim.AdamW(query.parameters(), lr=2e-3, weight_decay=1e-4)
    queue = torch.empty(0, DIM)
    print(f"knn accuracy before training {knn_accuracy(query):.4f}")
    for step in range(STEPS):
        x, _ = data.windows(BATCH)
        q = query(data.augment(x))
        with torch.no_grad():
            for pk, pq in zip(key.parameters(), query.parameters()):
                pk.lerp_(pq, 1 - MOMENTUM)
            k = key(data.augment(x))
        logits = torch.cat([q @ k.t(), q @ queue.t()], 1) / TEMP
        loss = F.cross_entropy(logits, torch.arange(BATCH))
        opt.zero_grad()
        loss.backward()
        opt.step()
        queue = torch.cat([queue, k])[-QUEUE:]
        if step % 15 == 0:
            print(
                f"step {step:4d} loss {loss.item():.4f} candidates {logits.shape[1]} "
                f"positive {(q * k).sum(1).mean().item():.3f}",
                flush=True,
            )
    print(f"final loss {loss.item():.4f} knn accuracy {knn_accuracy(query):.4f}")


if __name__ == "__main__":
    main()
