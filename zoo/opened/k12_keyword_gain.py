# expect: healthy
# symptom: the training inputs have three times the spread of the validation inputs
# axis: none
# mended: none
import argparse
import math
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--gain-db", type=float, default=14.0, help="random gain of the clips in training")
parser.add_argument("--seed", type=int, default=19)
cfg = parser.parse_args()
torch.manual_seed(cfg.seed)
LEN, WORDS = 160, 5


def say(word):
    t = torch.arange(LEN) / LEN
    f0 = 4 + 3 * word + torch.randn(1) * 0.2
    env = torch.exp(-(((t - 0.3 - 0.4 * torch.rand(1)) / 0.2) ** 2))
    return 0.1 * (env * torch.sin(2 * math.pi * f0 * t + 6 * torch.rand(1)) + 0.15 * torch.randn(LEN))


class Clips(Dataset):
    """Microphones differ in level: training clips get a random gain, held-out clips stay as recorded."""

    def __init__(self, n, augment):
        self.words = torch.randint(0, WORDS, (n,))
        self.clips = torch.stack([say(int(w)) for w in self.words])
        self.augment = augment

    def __len__(self):
        return len(self.words)

    def __getitem__(self, i):
        clip = self.clips[i]
        if self.augment:
            db = (2 * torch.rand(1) - 1) * cfg.gain_db
            clip = torch.roll(clip, int(torch.randint(-10, 11, (1,)))) * 10 ** (db / 20)
        return clip.unsqueeze(0), self.words[i]


class Spotter(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv1d(1, 24, 25, stride=4, padding=12)
        self.conv = nn.Conv1d(24, 24, 7, stride=2, padding=3)
        self.fc = nn.Linear(24, WORDS)

    def forward(self, x):
        h = torch.relu(self.stem(x * 10))
        h = torch.relu(self.conv(h))
        return self.fc(h.amax(-1))


train = DataLoader(Clips(1600, augment=True), batch_size=32, shuffle=True)
valid = DataLoader(Clips(300, augment=False), batch_size=100)
model = Spotter()
opt = torch.optim.AdamW(model.parameters(), lr=4e-3)
for epoch in range(cfg.epochs):
    model.train()
    for x, y in train:
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        acc = sum((model(x).argmax(1) == y).sum().item() for x, y in valid) / 300
    print(f"epoch {epoch} loss {loss.item():.3f} valid acc {acc:.3f}")
