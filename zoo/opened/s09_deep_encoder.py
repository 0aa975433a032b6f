# expect: sick
# symptom: loss jumps up in the first steps and then hangs near chance (2.3), still above 1.9 at the end; same model learns in another project
# axis: schedule
# cause: no warm-up: a deep post-norm transformer gets Adam's full rate from the first step
# says: (?i)(warm)
# onset_step: 1
# fix: linear warm-up over the first 120 steps
# mended: MENDED=1 python s09_deep_encoder.py
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(5)
T, V, D = 8, 10, 32


class FirstOfSequence(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(6)
        self.ids = torch.randint(0, V, (n, T), generator=g)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        row = self.ids[i]
        return row, row.flip(0)


class Encoder(nn.Module):
    def __init__(self, depth=12):
        super().__init__()
        self.emb = nn.Embedding(V, D)
        self.pos = nn.Parameter(0.5 * torch.randn(T, D))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(D, 4, 64, dropout=0.0, batch_first=True) for _ in range(depth)
        )
        self.out = nn.Linear(D, V)

    def forward(self, ids):
        x = self.emb(ids) + self.pos
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


def rate(step):
    if os.environ.get("MENDED") == "1":
        return min(1.0, (step + 1) / 120)
    return 1.0


net = Encoder()
opt = torch.optim.Adam(net.parameters(), lr=5e-3, betas=(0.9, 0.98))
sched = torch.optim.lr_scheduler.LambdaLR(opt, rate)
for step, (x, y) in enumerate(DataLoader(FirstOfSequence(24 * 240), batch_size=24, shuffle=True), 1):
    opt.zero_grad()
    loss = nn.functional.cross_entropy(net(x).transpose(1, 2), y)
    loss.backward()
    opt.step()
    sched.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.2e}")
