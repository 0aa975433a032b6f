# expect: sick
# symptom: the loss stays at about ln(10) and the accuracy near chance; no error, no NaN
# axis: precision
# cause: the gradients are clipped while they are still multiplied by the GradScaler scale (no unscale_ before)
# says: unscale|clip.{0,100}(scaled|scaler|loss.?scal)|(scaled|scaler|loss.?scal).{0,100}clip
# onset_step: 0
# fix: call scaler.unscale_(optimizer) before clip_grad_norm_
# mended: the script applies that change if the environment has MENDED=1
"""Glyph classification with a small residual CNN in mixed precision."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(8)
MENDED = os.environ.get("MENDED") == "1"

CLASSES, SIDE = 10, 16


def make_glyphs(n, seed):
    """Each class is a polyline through fixed points; strokes are shifted, dimmed and covered by noise."""
    proto = torch.Generator().manual_seed(2024)
    points = torch.rand(CLASSES, 5, 2, generator=proto) * 0.8 + 0.1
    steps = torch.linspace(0, 1, 12)[:, None]
    gen = torch.Generator().manual_seed(seed)
    y = torch.randint(0, CLASSES, (n,), generator=gen)
    grid = torch.stack(torch.meshgrid(torch.linspace(0, 1, SIDE), torch.linspace(0, 1, SIDE), indexing="ij"), -1)
    templates = []
    for c in range(CLASSES):
        pts = torch.cat([points[c, i] * (1 - steps) + points[c, i + 1] * steps for i in range(4)])
        dist = ((grid[:, :, None] - pts) ** 2).sum(-1).min(dim=-1).values
        templates.append(torch.exp(-dist / 0.003))
    img = torch.stack(templates)[y]
    shift = torch.randint(-2, 3, (n, 2), generator=gen).tolist()
    img = torch.stack([torch.roll(im, s, dims=(0, 1)) for im, s in zip(img, shift)])
    img = img * (0.6 + 0.4 * torch.rand(n, 1, 1, generator=gen)) + 0.25 * torch.randn(img.shape, generator=gen)
    return TensorDataset(((img - 0.2) / 0.4).unsqueeze(1), y)


class Residual(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.skip = nn.Conv2d(cin, cout, 1, stride, bias=False)

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(h)) + self.skip(x))


def build_model():
    return nn.Sequential(
        Residual(1, 12, 2), Residual(12, 24, 2), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(96, CLASSES)
    )


class Trainer:
    def __init__(self, model, lr, epochs, loader):
        self.model, self.loader, self.epochs = model, loader, epochs
        decay = [p for p in model.parameters() if p.ndim > 1]
        plain = [p for p in model.parameters() if p.ndim <= 1]
        self.opt = torch.optim.SGD(
            [{"params": decay, "weight_decay": 5e-4}, {"params": plain}], lr=lr, momentum=0.9, nesterov=True
        )
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, epochs * len(loader))
        self.scaler = torch.amp.GradScaler("cpu")
        self.step = 0

    def train_step(self, x, y):
        with torch.autocast("cpu", dtype=torch.float16):
            logits = self.model(x)
        loss = F.cross_entropy(logits.float(), y)
        self.opt.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        if MENDED:
            self.scaler.unscale_(self.opt)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.opt)
        self.scaler.update()
        self.sched.step()
        return loss.item()

    def fit(self, valid):
        for epoch in range(self.epochs):
            self.model.train()
            for x, y in self.loader:
                loss = self.train_step(x, y)
                if self.step % 20 == 0:
                    print(
                        f"step {self.step:4d} loss {loss:.4f} lr {self.sched.get_last_lr()[0]:.4f} "
                        f"scale {self.scaler.get_scale():.0f}"
                    )
                self.step += 1
            print(f"epoch {epoch} valid acc {self.accuracy(valid):.3f}")
        print(f"final loss {loss:.4f} valid accuracy {self.accuracy(valid):.3f}")

    @torch.no_grad()
    def accuracy(self, loader):
        self.model.eval()
        hits = [(self.model(x).argmax(1) == y).float().mean() for x, y in loader]
        return torch.stack(hits).mean().item()


def main():
    train = DataLoader(make_glyphs(3200, 1), batch_size=64, shuffle=True, drop_last=True)
    valid = DataLoader(make_glyphs(1000, 2), batch_size=250)
    Trainer(build_model(), lr=0.05, epochs=5, loader=train).fit(valid)


if __name__ == "__main__":
    main()
