# expect: sick
# symptom: loss small until step 119; at step 120 loss 6e4 and an enormous gradient norm, NaN from step 121 on
# axis: optimizer
# cause: no gradient clipping: a rare very long sequence makes the gradient of the plain RNN explode
# says: (?i)(clip|explod.{0,30}gradient|gradient.{0,40}explo)
# onset_step: 120
# fix: add clipping at 1.0
# mended: MENDED=1 python s35_counter_rnn.py
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(37)


class Pulses(Dataset):
    """Leaky counts of pulses; most recordings are short."""

    def __init__(self, n, batch=16):
        g = torch.Generator().manual_seed(22)
        self.length = torch.full((n // batch,), 12)
        self.length[119::200] = 150
        self.batch, self.seed = batch, 1000

    def __len__(self):
        return len(self.length)

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed + i)
        x = torch.rand(self.batch, int(self.length[i]), 2, generator=g)
        y = torch.zeros(self.batch)
        for t in range(x.shape[1]):
            y = 0.9 * y + 0.3 * (x[:, t, 0] - x[:, t, 1])
        return x, y


class Leaky(nn.Module):
    def __init__(self, h=24):
        super().__init__()
        self.inp, self.rec, self.out = nn.Linear(2, h), nn.Linear(h, h, bias=False), nn.Linear(h, 1)
        nn.init.orthogonal_(self.rec.weight, gain=1.1)

    def forward(self, x):
        h = torch.zeros(len(x), self.rec.in_features)
        for t in range(x.shape[1]):
            h = nn.functional.leaky_relu(self.inp(x[:, t]) + self.rec(h), 0.9)
        return self.out(h).squeeze(1)


net = Leaky()
opt = torch.optim.SGD(net.parameters(), lr=0.003)
for step, (x, y) in enumerate(DataLoader(Pulses(16 * 300), batch_size=None), 1):
    loss = nn.functional.mse_loss(net(x), y)
    opt.zero_grad()
    loss.backward()
    norm = torch.stack([p.grad.norm() for p in net.parameters()]).norm()
    if os.environ.get("MENDED") == "1":
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    if step % 20 == 0 or 117 < step < 124:
        print(f"step {step} T={x.shape[1]} loss {loss.item():.4g} grad {norm.item():.3g}")
