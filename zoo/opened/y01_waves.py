# expect: sick
# symptom: the loss goes on falling in a noise that grows, or stays where it is, and held-out rows get worse
# axis: data
# cause: reading a row overwrites the stored one in place, so later epochs train on other data
# says: (overwrit|in.?place|mutat|modif|alias|view|copy|clone).{0,120}|stored.{0,40}(row|sample|data)
# onset_step: 0
# fix: copy the row before it is changed
# mended: the same with the fix
import math
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"

torch.manual_seed(3)


class Waves(Dataset):
    """Short sine waves of three frequencies, with jitter on every read."""

    def __init__(self, n=192, length=32, jitter=0.4):
        t = torch.linspace(0, 1, length)
        self.labels = torch.randint(0, 3, (n,))
        freq = (self.labels + 1).float().unsqueeze(1)
        phase = torch.rand(n, 1) * 2 * math.pi
        self.waves = torch.sin(2 * math.pi * freq * t + phase)
        self.jitter = jitter

    def __len__(self):
        return len(self.waves)

    def __getitem__(self, i):
        wave = self.waves[i]
        if MENDED:
            wave = wave.clone()
        wave += self.jitter * torch.randn(wave.shape)
        if torch.rand(()) < 0.5:
            wave *= -1
        return wave, self.labels[i]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 8, 7, padding=3)
        self.out = nn.Linear(16, 3)

    def forward(self, x):
        h = torch.relu(self.conv(x.unsqueeze(1)))
        return self.out(torch.cat([h.mean(-1), h.amax(-1)], dim=1))


def main():
    loader = DataLoader(Waves(), batch_size=16, shuffle=True)
    net = Net()
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    loss_fn = nn.CrossEntropyLoss()
    for epoch in range(12):
        total, right = 0.0, 0
        for wave, label in loader:
            logits = net(wave)
            loss = loss_fn(logits, label)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item() * len(label)
            right += (logits.argmax(1) == label).sum().item()
        n = len(loader.dataset)
        print(f"epoch {epoch:2d}  loss {total / n:.4f}  acc {right / n:.3f}")


if __name__ == "__main__":
    main()
