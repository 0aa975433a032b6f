# expect: sick
# symptom: held-out rows are worse than they need to be
# axis: data
# cause: inputs of two rows are mixed and the labels are not mixed alike
# says: (mix|lam|cut.?mix|blend).{0,160}(label|target)|(label|target).{0,120}(mix|lam|permut|order|weight)
# onset_step: 0
# fix: mix the labels with the weights of the inputs
# mended: the same with the fix
import argparse
import os

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

MENDED = os.environ.get("MENDED") == "1"


def render(n, side=12):
    """Gratings in four orientations with noise."""
    y = torch.randint(0, 4, (n,))
    angle = y.float() * torch.pi / 4 + 0.1 * torch.randn(n)
    r = torch.arange(side).float()
    yy, xx = torch.meshgrid(r, r, indexing="ij")
    phase = 6.28 * torch.rand(n, 1, 1)
    wave = torch.sin(1.6 * (xx * angle.cos()[:, None, None] + yy * angle.sin()[:, None, None]) + phase)
    return (wave + 1.3 * torch.randn(n, side, side)).unsqueeze(1), y


def rand_strip(width, beta):
    lam = np.random.beta(beta, beta)
    wide = int(round(width * (1.0 - lam)))
    start = np.random.randint(width)
    return (start + np.arange(wide)) % width


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 12, 5)
        self.conv2 = nn.Conv2d(12, 16, 3, stride=2)
        self.fc = nn.Linear(16, 4)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        return self.fc(x.mean((2, 3)))


def train_batch(model, x, y, beta):
    perm = torch.randperm(len(x))
    cols = rand_strip(x.size(3), beta)
    x = x.clone()
    x[..., cols] = x[perm][..., cols]
    logits = model(x)
    if MENDED:
        kept = 1 - len(cols) / x.size(3)
        return kept * F.cross_entropy(logits, y) + (1 - kept) * F.cross_entropy(logits, y[perm])
    return F.cross_entropy(logits, y)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--batch-size", type=int, default=48)
    ap.add_argument("--beta", type=float, default=1.0)
    args = ap.parse_args()
    torch.manual_seed(1)
    np.random.seed(1)
    torch.set_num_threads(1)
    x, y = render(640)
    xt, yt = render(300)
    model = ConvNet()
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    avg = None
    for step in range(1, args.steps + 1):
        idx = torch.randint(0, len(x), (args.batch_size,))
        loss = train_batch(model, x[idx], y[idx], args.beta)
        opt.zero_grad()
        loss.backward()
        opt.step()
        avg = loss.item() if avg is None else 0.95 * avg + 0.05 * loss.item()
        if step % 50 == 0:
            with torch.no_grad():
                logits = model(xt)
            acc = (logits.argmax(1) == yt).float().mean()
            print(f"step {step} loss {avg:.4f} test loss {F.cross_entropy(logits, yt):.4f} acc {acc:.3f}")


main()
