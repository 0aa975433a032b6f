# expect: sick
# symptom: the loss falls for some dozens of steps and then stays on a high plateau; accuracy stays near one half
# axis: schedule
# cause: ReduceLROnPlateau in default mode min receives accuracy, so it cuts the rate while the run improves
# says: (?i)(?=.*(plateau|scheduler))(?=.*(mode|\bmin\b|\bmax\b|accura|wrong (metric|direction)))
# onset_step: 40
# fix: construct the scheduler with mode="max"
# mended: the script applies that change if the environment has MENDED=1
import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(31)
MENDED = os.environ.get("MENDED") == "1"

CLASSES, SIZE, BATCH, EPOCHS = 8, 20, 64, 40


def textures(n, seed):
    """Oriented gratings with clutter; the class is the orientation and the band of frequency."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, CLASSES, (n,), generator=g)
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, SIZE), torch.linspace(-1, 1, SIZE), indexing="ij")
    ang = (y % 4).float() * math.pi / 4 + 0.12 * torch.randn(n, generator=g)
    freq = torch.where(y < 4, 6.0, 11.0) + 0.6 * torch.randn(n, generator=g)
    phase = 2 * math.pi * torch.rand(n, generator=g)
    ang, freq, phase = (v[:, None, None] for v in (ang, freq, phase))
    wave = torch.sin(freq * (torch.cos(ang) * xx + torch.sin(ang) * yy) + phase)
    img = wave + 1.4 * torch.randn(n, SIZE, SIZE, generator=g)
    return img[:, None], y


class TextureNet(nn.Module):
    def __init__(self, w=12):
        super().__init__()
        self.c1 = nn.Conv2d(1, w, 5, padding=2)
        self.c2 = nn.Conv2d(w, 2 * w, 3, padding=1)
        self.c3 = nn.Conv2d(2 * w, 2 * w, 3, padding=1)
        self.fc = nn.Linear(2 * w, CLASSES)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.c1(x)), 2)
        x = F.max_pool2d(F.relu(self.c2(x)), 2)
        x = F.relu(self.c3(x))
        return self.fc(x.mean((2, 3)))


@torch.no_grad()
def validate(model, x, y):
    model.eval()
    acc = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return acc


def main():
    xtr, ytr = textures(640, 1)
    xva, yva = textures(400, 2)
    xte, yte = textures(600, 3)
    model = TextureNet()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-3)
    plateau_kw = dict(mode="max") if MENDED else {}
    sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.3, patience=2, **plateau_kw)
    step = 0
    for epoch in range(EPOCHS):
        for idx in torch.randperm(len(xtr)).split(BATCH):
            loss = F.cross_entropy(model(xtr[idx]), ytr[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 20 == 0:
                print(f"step {step} loss {loss.item():.4f}")
            step += 1
        acc = validate(model, xva, yva)
        sched.step(acc)
        if epoch % 4 == 3:
            print(f"epoch {epoch} val accuracy {acc:.3f}")
    print(f"final step {step} loss {loss.item():.4f} test accuracy {validate(model, xte, yte):.3f}")


if __name__ == "__main__":
    main()
