# expect: sick
# symptom: the loss falls in the first epochs, then climbs again epoch after epoch; validation accuracy decays to chance-like levels
# axis: data
# cause: the time and frequency masks of the augmentation are written in place into the cached spectrogram, so masks pile up from epoch to epoch and the training clips are gradually erased
# says: (in[- ]?place|mutat|cach|accumulat|pile|view|persist|overwrit|corrupt|permanent|progressiv|clone|copy|copies|eras|modif|destroy)[^.]*(mask|augment|spec|clip|data|band)|(mask|augment|spec|clip|data|band)[^.]*(in[- ]?place|mutat|cached|accumulat|pile|persist|overwrit|corrupt|permanent|progressiv|clone|copied|eras|destroy)
# onset_step: 25
# fix: clone the cached spectrogram in __getitem__ before masking it
# mended: yes
import os
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader

MENDED = os.environ.get("MENDED") == "1"
MELS, FRAMES, WORDS = 40, 48, 12


def synth_clip(word, gen, bank):
    """log-mel picture of one spoken keyword: three moving formants plus room noise"""
    t = torch.linspace(0, 1, FRAMES)
    mel = torch.arange(MELS).float().unsqueeze(1)
    spec = torch.zeros(MELS, FRAMES)
    shift = torch.randn(1, generator=gen) * 1.5
    tempo = 1 + 0.15 * torch.randn(1, generator=gen)
    for start, end, bend in bank[word]:
        centre = start + (end - start) * (t * tempo).clamp(0, 1) + bend * torch.sin(3.14 * t) + shift
        spec += torch.exp(-0.5 * ((mel - centre) / 1.6) ** 2)
    return spec + 0.45 * torch.randn(MELS, FRAMES, generator=gen)


class KeywordSet(Dataset):
    def __init__(self, n, seed, train):
        gen = torch.Generator().manual_seed(seed)
        bank_gen = torch.Generator().manual_seed(99)
        base = torch.rand(WORDS, 3, 3, generator=bank_gen)
        bank = base * torch.tensor([34.0, 34.0, 12.0]) + torch.tensor([3.0, 3.0, -6.0])
        self.labels = torch.randint(WORDS, (n,), generator=gen)
        # feature extraction is slow, so do it once
        self.feats = [synth_clip(int(w), gen, bank) for w in self.labels]
        self.train = train

    def __len__(self):
        return len(self.labels)

    def spec_augment(self, spec):
        f = int(torch.randint(0, 9, (1,)))
        f0 = int(torch.randint(0, MELS - f, (1,)))
        spec[f0 : f0 + f] = 0
        w = int(torch.randint(0, 11, (1,)))
        t0 = int(torch.randint(0, FRAMES - w, (1,)))
        spec[:, t0 : t0 + w] = 0
        return spec

    def __getitem__(self, i):
        spec = self.feats[i].clone() if MENDED else self.feats[i]
        if self.train:
            spec = self.spec_augment(spec)
        return spec.unsqueeze(0), self.labels[i]


class SmallResNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, stride=2, padding=1)
        self.c1 = nn.Conv2d(width, width, 3, padding=1)
        self.c2 = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.n0, self.n1, self.n2 = (nn.BatchNorm2d(c) for c in (width, width, 2 * width))
        self.head = nn.Linear(2 * width * 10, WORDS)

    def forward(self, x):
        x = F.relu(self.n0(self.stem(x)))
        x = x + F.relu(self.n1(self.c1(x)))
        x = F.relu(self.n2(self.c2(x)))
        return self.head(x.mean(-1).flatten(1))


@torch.no_grad()
def accuracy(net, loader):
    net.eval()
    hit = sum((net(x).argmax(1) == y).sum().item() for x, y in loader)
    net.train()
    return hit / len(loader.dataset)


def run(epochs=18, batch=32, lr=1.5e-3):
    torch.manual_seed(17)
    train_set = KeywordSet(768, seed=1, train=True)
    val_set = KeywordSet(384, seed=2, train=False)
    train = DataLoader(train_set, batch, shuffle=True)
    val = DataLoader(val_set, 128)
    net = SmallResNet()
    opt = torch.optim.Adam(net.parameters(), lr=lr)
    step = 0
    for epoch in range(epochs):
        total = 0.0
        for x, y in train:
            loss = F.cross_entropy(net(x), y, label_smoothing=0.02)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            total += loss.item()
            if step % 24 == 0:
                print(f"step {step:4d}  loss {loss.item():.4f}", flush=True)
        print(f"epoch {epoch + 1:2d}  mean loss {total / len(train):.4f}  val acc {accuracy(net, val):.3f}", flush=True)


if __name__ == "__main__":
    run()
