# expect: sick
# symptom: loss NaN at step 620; the clip of that step is loud but in range
# axis: precision
# cause: the energy of a loud clip is squared in float16 and passes 65504: overflow in half precision
# says: (?i)half[- ]precision|float16|fp16|65504|16[- ]bit
# onset_step: 620
# fix: compute the energy in float32
# mended: MENDED=1 python s53_loud_clip.py
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(60)
WORK = torch.float32 if os.environ.get("MENDED") == "1" else torch.float16


class Clips(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(36)
        self.y = torch.randint(0, 3, (n,), generator=g)
        t = torch.arange(32) / 32
        wave = torch.sin(6.28 * (2 + 3 * self.y[:, None]) * t + 6.28 * torch.rand(n, 1, generator=g))
        gain = 2 + 20 * torch.rand(n, 1, generator=g)
        gain[619 * 16 + 9] = 300
        self.x = gain * (wave + 0.5 * torch.randn(n, 32, generator=g))

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class Listener(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 12, 9, stride=2)
        self.fc = nn.Linear(13, 3)

    def forward(self, x):
        h = x.to(WORK)
        level = h.square().mean(1, keepdim=True).float().sqrt()
        x = self.conv((x / level)[:, None])
        return self.fc(torch.cat([x.square().mean(2), level.log()], 1))


net = Listener()
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
for step, (x, y) in enumerate(DataLoader(Clips(16 * 760), batch_size=16), 1):
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 40 == 0:
        print(f"step {step} loss {loss.item():.4f}")
