# expect: sick
# symptom: loss of 8e8 at the first step, gradient norms enormous; after 200 steps still far above ln 8 (2.08)
# axis: model
# cause: 40 residual branches are added at full scale without a norm, so the activations double in every block
# says: (?i)(residual|branch|(activation|signal).*(grow|doubl|explo)|depth|without (a )?norm)
# onset_step: 1
# fix: scale every residual branch by 1/sqrt(depth)
# mended: MENDED=1 python s13_forty_blocks.py
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(40)
DEPTH, WIDTH = 40, 32


class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        for lin in (self.a, self.b):
            nn.init.kaiming_normal_(lin.weight, nonlinearity="relu")
            nn.init.zeros_(lin.bias)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


class DeepNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(20, WIDTH)
        self.branches = nn.ModuleList(Branch() for _ in range(DEPTH))
        self.gain = DEPTH**-0.5 if os.environ.get("MENDED") == "1" else 1.0
        self.out = nn.Linear(WIDTH, 8)

    def forward(self, x):
        x = self.inp(x)
        for f in self.branches:
            x = x + self.gain * f(x)
        return self.out(x)


g = torch.Generator().manual_seed(14)
feats = torch.randn(64 * 200, 20, generator=g)
labels = (feats @ torch.randn(20, 8, generator=g)).argmax(1)
net = DeepNet()
opt = torch.optim.Adam(net.parameters(), lr=5e-4)
for step, (x, y) in enumerate(DataLoader(TensorDataset(feats, labels), batch_size=64, shuffle=True), 1):
    opt.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    norm = nn.utils.get_total_norm([p.grad for p in net.parameters()])
    opt.step()
    if step == 1 or step % 20 == 0:
        print(f"step {step} loss {loss.item():.4g} |g| {norm.item():.3g}")
