# expect: sick
# symptom: the loss jumps by four to six orders of magnitude in one step (156), and afterwards it lies far above its old level to the end of the run
# axis: loss
# cause: the heatmap loss is summed over all pixels and divided by (number of objects + 1e-6); the clip of step 156 has no object, so the background's loss is multiplied by a million, and Adam's second moment is spoiled for the rest of the run
# says: (divi|normali[sz]|denominator|count|num_pos|eps|1e-6|empty|no (objects?|positives?)|zero (objects?|positives?)|without (any )?(objects?|positives?)).{0,200}(zero|0\b|empty|no (objects?|positives?)|eps|1e-6|clamp|max\(|tiny|small|without|huge|explod|million)
# onset_step: 156
# fix: divide by max(number of objects, 1)
# mended: the count is clamped to at least 1
"""Finding object centres in short clips: heatmap head with a focal loss."""

import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
S, FRAMES, CLIPS = 32, 8, 340


def make_clip(idx):
    rng = np.random.default_rng(10_000 + idx)
    n_obj = rng.poisson(5.5)
    yy, xx = np.mgrid[:S, :S]
    frames = rng.normal(0, 0.3, (FRAMES, 1, S, S))
    heat = np.zeros((FRAMES, 1, S, S))
    pos = rng.uniform(6, S - 6, (n_obj, 2))
    vel = rng.normal(0, 0.8, (n_obj, 2))
    for t in range(FRAMES):
        for p, v in zip(pos, vel):
            c = np.clip(np.rint(p + t * v), 1, S - 2)
            d2 = (yy - c[0]) ** 2 + (xx - c[1]) ** 2
            frames[t, 0] += 1.2 * np.exp(-d2 / 8.0)
            heat[t, 0] = np.maximum(heat[t, 0], np.exp(-d2 / 2.0))
        frames[t, 0] += 0.8 * np.exp(-((yy - rng.uniform(0, S)) ** 2) / 2.0)
    return torch.tensor(frames, dtype=torch.float32), torch.tensor(heat, dtype=torch.float32)


class CenterHead(nn.Module):
    def __init__(self, c=20):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, c, 3, padding=1),
            nn.GroupNorm(4, c),
            nn.SiLU(),
            nn.Conv2d(c, c, 3, padding=2, dilation=2),
            nn.GroupNorm(4, c),
            nn.SiLU(),
            nn.Conv2d(c, c, 3, padding=1),
            nn.SiLU(),
        )
        self.heat = nn.Conv2d(c, 1, 1)
        nn.init.constant_(self.heat.bias, -2.19)

    def forward(self, x):
        return self.heat(self.body(x))


def focal_loss(logits, target, alpha=2.0, beta=4.0):
    p = torch.sigmoid(logits)
    pos = target.eq(1).float()
    pos_term = F.logsigmoid(logits) * (1 - p) ** alpha * pos
    neg_term = F.logsigmoid(-logits) * p**alpha * (1 - target) ** beta * (1 - pos)
    total = -(pos_term.sum() + neg_term.sum())
    n = pos.sum()
    if MENDED:
        return total / n.clamp(min=1)
    return total / (n + 1e-6)


def main():
    torch.manual_seed(8)
    net = CenterHead()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=1e-3)
    val = [make_clip(10_000 + k) for k in range(6)]
    vx, vy = torch.cat([v[0] for v in val]), torch.cat([v[1] for v in val])
    for step in range(CLIPS):
        frames, heat = make_clip(step)
        loss = focal_loss(net(frames), heat)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 6 == 0:
            print(f"clip {step:3d} loss {loss.item():.4f}")
        if step % 50 == 49:
            with torch.no_grad():
                print(f"  val {focal_loss(net(vx), vy).item():.4f}")
    with torch.no_grad():
        print(f"final val {focal_loss(net(vx), vy).item():.4f}")


if __name__ == "__main__":
    main()
