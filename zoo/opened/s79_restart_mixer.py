# expect: sick
# symptom: the loss falls well for 250 steps, then jumps far above its first value and, after a whole cycle, ends worse than before the restart
# axis: schedule
# cause: the warm restart multiplies the peak by 40 instead of dividing it, so that the learning rate after the restart is far too high
# says: restart|(learning.?rate|\blr\b|rate).{0,60}(jump|ris|rais|too (high|large|big)|increas|higher|larger|spike|x\b|times|fold)|(jump|ris|rais|increas|higher|larger).{0,40}(learning.?rate|\blr\b)|schedul
# onset_step: 250
# fix: keep the peak of the second cycle at or below that of the first
# mended: the second cycle's peak is half of the first
import math
import os

import torch
from torch import nn

torch.manual_seed(90)
CYCLE, PEAK = 250, 3e-3
scale = 0.5 if os.environ.get("MENDED") == "1" else 40.0


def cosine_with_restarts(step):
    cycle, pos = divmod(step, CYCLE)
    peak = PEAK * scale**cycle
    return 1e-5 + 0.5 * (peak - 1e-5) * (1 + math.cos(math.pi * pos / CYCLE))


class MixerBlock(nn.Module):
    def __init__(self, tokens, dim):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.t = nn.Sequential(nn.Linear(tokens, 32), nn.GELU(), nn.Linear(32, tokens))
        self.c = nn.Sequential(nn.Linear(dim, 96), nn.GELU(), nn.Linear(96, dim))

    def forward(self, x):
        x = x + self.t(self.n1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.c(self.n2(x))


class Mixer(nn.Module):
    def __init__(self, tokens=16, patch=12, dim=48, classes=8):
        super().__init__()
        self.embed = nn.Linear(patch, dim)
        self.blocks = nn.Sequential(*[MixerBlock(tokens, dim) for _ in range(3)])
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, classes)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.embed(x))).mean(1))


keys = torch.randn(8, 16, 12)


def sample(n):
    y = torch.randint(8, (n,))
    x = 0.8 * keys[y] * (torch.rand(n, 16, 1) < 0.5) + torch.randn(n, 16, 12)
    return x, y


mixer = Mixer()
opt = torch.optim.AdamW(mixer.parameters(), lr=PEAK, weight_decay=0.02)
vx, vy = sample(500)
for step in range(2 * CYCLE):
    for group in opt.param_groups:
        group["lr"] = cosine_with_restarts(step)
    x, y = sample(32)
    loss = nn.functional.cross_entropy(mixer(x), y)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(mixer.parameters(), 1.0)
    opt.step()
    if step % 50 == 0 or step in (251, 255, 2 * CYCLE - 1):
        with torch.no_grad():
            acc = (mixer(vx).argmax(1) == vy).float().mean().item()
        print(f"{step:4d} lr {opt.param_groups[0]['lr']:.2e} loss {loss.item():.4f} valid {acc:.3f}", flush=True)
