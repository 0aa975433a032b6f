# expect: healthy
# symptom: rows that are blended, which looks like labels that are not
# axis: none
# mended: none
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

STEPS = 20


class Composites(Dataset):
    """A glyph with a soft matte is laid over a background texture; the glyph is the class."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        glyphs = torch.zeros(4, 8, 8)
        glyphs[0, 2:6, 3:5] = 1
        glyphs[1, 3:5, 2:6] = 1
        glyphs[2, 2:6, 2:6] = 1
        glyphs[3] = torch.eye(8)
        self.y = torch.randint(0, 4, (n,), generator=g)
        self.matte = 0.85 * glyphs[self.y]
        self.colour = 1.0 + 0.5 * torch.rand(n, 1, 1, generator=g)
        self.background = 0.4 * torch.randn(n, 8, 8, generator=g)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.matte[i], self.colour[i], self.background[i], self.y[i]


class NoisyClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Embedding(STEPS, 16)
        self.body = nn.Linear(64, 64)
        self.label = nn.Linear(64, 4)
        self.clean = nn.Linear(64, 64)

    def forward(self, x_t, t):
        h = F.silu(self.body(x_t.flatten(1)) + F.pad(self.time(t), (0, 48)))
        return self.label(h), self.clean(h).view_as(x_t)


def composite(matte, colour, background):
    other = background[torch.randperm(len(background))]
    return matte * colour + (1 - matte) * other


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    alpha_bar = torch.cos(torch.linspace(0.05, 1.4, STEPS)) ** 2
    loader = DataLoader(Composites(640, 1), batch_size=40, shuffle=True)
    test = Composites(300, 2)
    net = NoisyClassifier()
    slow = [p.detach().clone() for p in net.parameters()]
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    for epoch in range(1, 11):
        total = 0.0
        for matte, colour, background, y in loader:
            x = composite(matte, colour, background)
            t = torch.randint(0, STEPS, (len(x),))
            a = alpha_bar[t].view(-1, 1, 1)
            x_t = a.sqrt() * x + (1 - a).sqrt() * torch.randn_like(x)
            logits, x0 = net(x_t, t)
            loss = F.cross_entropy(logits, y) + F.mse_loss(x0, x)
            opt.zero_grad()
            loss.backward()
            opt.step()
            for s, p in zip(slow, net.parameters()):
                s.copy_(0.95 * s + 0.05 * p.detach())
            total += loss.item()
        if epoch % 2 == 0:
            with torch.no_grad():
                x = test.matte * test.colour + (1 - test.matte) * test.background
                acc = (net(x, torch.zeros(len(x)).long())[0].argmax(1) == test.y).float().mean().item()
            print(f"epoch {epoch} loss {total / len(loader):.4f} clean acc {acc:.3f}")


main()
