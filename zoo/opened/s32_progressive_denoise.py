# expect: sick
# symptom: loss in the log is inf from step 120 on for some steps, when the larger crops begin; the weights survive and it becomes finite again
# axis: precision
# cause: the squared errors are summed in float16; with the large crops the sum passes 65504
# says: (?i)half[- ]precision|float16|fp16|65504|16[- ]bit
# onset_step: 120
# fix: sum in float32
# mended: MENDED=1 python s32_progressive_denoise.py
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(34)
ACC = torch.float32 if os.environ.get("MENDED") == "1" else torch.float16


class Clouds(Dataset):
    """Smooth random images, noised; the crops grow in the second stage."""

    def __init__(self, n, size, seed):
        g = torch.Generator().manual_seed(seed)
        low = torch.randn(n, 3, 4, 4, generator=g)
        self.clean = nn.functional.interpolate(low, size=size, mode="bilinear")
        self.noise = torch.randn(n, 3, size, size, generator=g)

    def __len__(self):
        return len(self.clean)

    def __getitem__(self, i):
        return self.clean[i] + self.noise[i], self.noise[i]


class Eps(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 12, 3, padding=1),
            nn.SiLU(),
            nn.Conv2d(12, 12, 3, padding=1),
            nn.SiLU(),
            nn.Conv2d(12, 3, 3, padding=1),
        )

    def forward(self, x):
        return self.net(x)


def mse(pred, noise):
    err = (pred - noise).square().to(ACC)
    return (err.sum() / 65536).float() * (65536 / err.numel())


model = Eps()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
step = 0
for size, n in ((16, 16 * 119), (96, 16 * 25)):
    for x, noise in DataLoader(Clouds(n, size, seed=size), batch_size=16, shuffle=True):
        loss = mse(model(x), noise)
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        if step % 10 == 0:
            print(f"step {step} ({size}px) loss {loss.item():.4f}")
