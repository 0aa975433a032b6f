# expect: healthy
# symptom: zero_grad comes only every fourth backward and the front end never moves; resembles stale gradients
# axis: optimizer
"""Keyword spotting on synthetic speech-like tones: fixed filter bank, GRU, accumulated batches."""

import math
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
SR, DUR = 4000, 0.4
WORDS = {"up": (400, 900), "down": (900, 400), "left": (600, 1400), "right": (1400, 600), "stop": (700, 700)}


class KeywordDataset(Dataset):
    """Two formants gliding over time, plus background noise and a random onset."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        t = torch.arange(int(SR * DUR)) / SR
        self.wave, self.label = [], []
        keys = list(WORDS.values())
        for _ in range(n):
            c = int(torch.randint(0, len(keys), (1,), generator=g))
            u = torch.rand(4, generator=g)
            f0, f1 = (f * (0.92 + 0.16 * float(u[0])) for f in keys[c])
            freq = f0 + (f1 - f0) * t / DUR
            phase = 2 * math.pi * torch.cumsum(freq / SR, 0) + 6.28 * u[1]
            env = torch.exp(-(((t - 0.2 - 0.05 * (u[2] - 0.5)) / 0.12) ** 2))
            w = env * (torch.sin(phase) + 0.4 * torch.sin(2 * phase))
            self.wave.append(w * (0.5 + u[3]) + 0.3 * torch.randn(len(t), generator=g))
            self.label.append(c)

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        return self.wave[i], self.label[i]


class FilterBank(nn.Module):
    """Gabor filters on a fixed grid of frequencies, log energy per frame. Not trained."""

    def __init__(self, n_filters=24, width=128, hop=64):
        super().__init__()
        t = (torch.arange(width) - width / 2) / SR
        freqs = torch.linspace(150, 1800, n_filters)[:, None]
        win = torch.hann_window(width)
        kern = torch.cat([win * torch.cos(2 * math.pi * freqs * t), win * torch.sin(2 * math.pi * freqs * t)])
        self.kernel = nn.Parameter(kern[:, None] / width**0.5, requires_grad=False)
        self.hop, self.n = hop, n_filters

    def forward(self, wave):
        z = F.conv1d(wave[:, None], self.kernel, stride=self.hop)
        power = z[:, : self.n] ** 2 + z[:, self.n :] ** 2
        return torch.log(power + 1e-3).transpose(1, 2)


class KeywordModel(nn.Module):
    def __init__(self, n_cls, hidden=48):
        super().__init__()
        self.front = FilterBank()
        self.norm = nn.LayerNorm(24)
        self.rnn = nn.GRU(24, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, n_cls)

    def forward(self, wave):
        h, _ = self.rnn(self.norm(self.front(wave)))
        return self.out(h.mean(1))


def main():
    torch.manual_seed(9)
    train, valid = KeywordDataset(1600, 1), KeywordDataset(400, 2)
    loader = DataLoader(train, batch_size=16, shuffle=True, drop_last=True)
    model = KeywordModel(len(WORDS))
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-3)
    accum, updates = 4, 0
    for epoch in range(6):
        for i, (wave, label) in enumerate(loader):
            if i % accum == 0:
                opt.zero_grad()
            loss = F.cross_entropy(model(wave), label)
            (loss / accum).backward()
            if i % accum == accum - 1:
                opt.step()
                if updates % 10 == 0:
                    print(f"epoch {epoch} update {updates:4d} loss {loss.item():.4f}")
                updates += 1
        model.eval()
        with torch.no_grad():
            hits = sum((model(w).argmax(1) == y).sum().item() for w, y in DataLoader(valid, batch_size=100))
        model.train()
        print(f"epoch {epoch} valid acc {hits / len(valid):.3f}")


if __name__ == "__main__":
    main()
