# expect: sick
# symptom: loss falls until step 120, then it stays flat: the weights no longer move, every step is skipped
# axis: precision
# cause: the hand-made loss scaler never clears its overflow flag, so after the first overflow all steps are skipped and the scale only falls
# says: (?i)scal(er|e|ing)\b.{0,80}(stuck|skip|flag|overflow|never|falls)|skip.{0,60}(step|update)|overflow flag|found_inf
# onset_step: 120
# fix: clear the overflow flag at the start of every step
# mended: MENDED=1 python s42_half_conv_scaler.py
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(45)


class Scaler:
    def __init__(self, scale=2.0**13, every=118):
        self.scale, self.every, self.good, self.found_inf = scale, every, 0, False

    def step(self, opt, pairs):
        if os.environ.get("MENDED") == "1":
            self.found_inf = False
        for half, full in pairs:
            grad = half.grad.float() / self.scale
            self.found_inf |= not bool(torch.isfinite(grad).all())
            full.grad = grad
        if self.found_inf:
            self.scale = max(1.0, self.scale / 2)
            self.good = 0
            return
        opt.step()
        self.good += 1
        if self.good % self.every == 0:
            self.scale *= 2.0**9


def tones(n):
    g = torch.Generator().manual_seed(29)
    y = torch.randint(0, 4, (n,), generator=g)
    t = torch.arange(48) / 48
    x = torch.sin(6.28 * (3 + 3 * y[:, None]) * t + 6.28 * torch.rand(n, 1, generator=g))
    return TensorDataset((x + 1.2 * torch.randn(n, 48, generator=g)).half(), y)


def build():
    return nn.Sequential(nn.Linear(48, 96), nn.ReLU(), nn.Linear(96, 48), nn.ReLU(), nn.Linear(48, 4))


master = build()
model = build().half()
opt = torch.optim.Adam(master.parameters(), lr=5e-4)
scaler = Scaler()
for step, (x, y) in enumerate(DataLoader(tones(32 * 300), batch_size=32, shuffle=True), 1):
    for h, f in zip(model.parameters(), master.parameters()):
        h.data.copy_(f.data)
    loss = nn.functional.cross_entropy(model(x).float(), y)
    model.zero_grad()
    (loss * scaler.scale).backward()
    scaler.step(opt, list(zip(model.parameters(), master.parameters())))
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f} scale {scaler.scale:.3g}")
