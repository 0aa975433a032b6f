# expect: sick
# symptom: training loss and training dice go well, but the validation loss and dice do not follow: validation stays far behind the training numbers on data from the same source
# axis: model
# cause: BatchNorm momentum 0.0003 (a value for fine-tuning with good pretrained statistics): in some hundred steps from scratch the running mean and variance hardly leave their initial 0 and 1, so eval mode normalises with wrong statistics
# says: (batch ?norm|\bbn\b).{0,160}(momentum|running|statistic|eval|stale|buffer)|(momentum|running|statistic).{0,160}(batch ?norm|\bbn\b)|running.{0,12}(stat|mean|var)
# onset_step: 0
# fix: use the default momentum 0.1 (or 0.01) when training from scratch
# mended: BatchNorm momentum is 0.1 instead of 0.0003
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(2)

BN = dict(momentum=0.1 if MENDED else 3e-4, eps=1e-3)
SIZE = 32


class Scans:
    """Synthetic scans: an organ (ellipse) and a lesion inside; gain and offset differ from machine to machine."""

    def __init__(self, n, seed):
        r = np.random.default_rng(seed)
        yy, xx = np.mgrid[:SIZE, :SIZE]
        self.x = np.zeros((n, 1, SIZE, SIZE), np.float32)
        self.y = np.zeros((n, SIZE, SIZE), np.int64)
        for i in range(n):
            cy, cx = r.uniform(11, 21, 2)
            a, b = r.uniform(7, 12, 2)
            th = r.uniform(0, np.pi)
            u = (xx - cx) * np.cos(th) + (yy - cy) * np.sin(th)
            v = -(xx - cx) * np.sin(th) + (yy - cy) * np.cos(th)
            organ = (u / a) ** 2 + (v / b) ** 2 < 1
            ly, lx, lr = cy + r.uniform(-4, 4), cx + r.uniform(-4, 4), r.uniform(2.5, 4.5)
            lesion = (((yy - ly) ** 2 + (xx - lx) ** 2) < lr**2) & organ
            img = 0.6 * organ + 0.6 * lesion + 0.12 * r.normal(size=(SIZE, SIZE))
            gain, off = np.exp(r.normal(0.5, 0.4)), r.normal(0, 0.5)
            self.x[i, 0] = gain * img + off
            self.y[i] = organ.astype(np.int64) + lesion
        self.x, self.y = torch.from_numpy(self.x), torch.from_numpy(self.y)

    def __len__(self):
        return len(self.x)


def conv(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1, bias=False),
        nn.BatchNorm2d(o, **BN),
        nn.ReLU(inplace=True),
        nn.Conv2d(o, o, 3, padding=1, bias=False),
        nn.BatchNorm2d(o, **BN),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, c=8, n_cls=3):
        super().__init__()
        self.e1, self.e2, self.e3 = conv(1, c), conv(c, 2 * c), conv(2 * c, 4 * c)
        self.u2, self.u1 = nn.ConvTranspose2d(4 * c, 2 * c, 2, 2), nn.ConvTranspose2d(2 * c, c, 2, 2)
        self.d2, self.d1 = conv(4 * c, 2 * c), conv(2 * c, c)
        self.out = nn.Conv2d(c, n_cls, 1)

    def forward(self, x):
        a = self.e1(x)
        b = self.e2(F.max_pool2d(a, 2))
        h = self.e3(F.max_pool2d(b, 2))
        h = self.d2(torch.cat([self.u2(h), b], 1))
        h = self.d1(torch.cat([self.u1(h), a], 1))
        return self.out(h)


def dice(logits, y):
    p = logits.argmax(1)
    s = []
    for c in (1, 2):
        i = ((p == c) & (y == c)).sum().item()
        s.append(2 * i / max(1, (p == c).sum().item() + (y == c).sum().item()))
    return float(np.mean(s))


def seg_loss(logits, y):
    p = logits.softmax(1)
    t = F.one_hot(y, 3).permute(0, 3, 1, 2).float()
    inter, tot = (p * t).sum((0, 2, 3)), (p + t).sum((0, 2, 3))
    return F.cross_entropy(logits, y) + 1 - ((2 * inter + 1) / (tot + 1))[1:].mean()


def main():
    train, val = Scans(320, 0), Scans(128, 1)
    net = UNet()
    bs, epochs = 16, 14
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-4)
    per_epoch = (len(train) + bs - 1) // bs
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 8e-3, total_steps=epochs * per_epoch, pct_start=0.2)
    step = 0
    for epoch in range(epochs):
        net.train()
        perm, scores = torch.randperm(len(train)), []
        for i in range(0, len(train), bs):
            idx = perm[i : i + bs]
            logits = net(train.x[idx])
            loss = seg_loss(logits, train.y[idx])
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 2.0)
            opt.step()
            sched.step()
            scores.append(dice(logits.detach(), train.y[idx]))
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        net.eval()
        with torch.no_grad():
            out = net(val.x)
            print(
                f"epoch {epoch} train dice {np.mean(scores):.3f} val loss {seg_loss(out, val.y).item():.3f} val dice {dice(out, val.y):.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
