# expect: sick
# symptom: loss is flat at ln 4 from the first step, the gradients of all but the last bias are exactly 0
# axis: model
# cause: the hidden biases are initialised at -20, every ReLU is dead
# says: (?i)\bdead|dying|\bbias
# onset_step: 1
# fix: initialise the hidden biases at 0
# mended: MENDED=1 python s56_sparse_bias.py
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(63)
START = 0.0 if os.environ.get("MENDED") == "1" else -20.0


class PointNet(nn.Module):
    """Points one by one, then a maximum over the cloud."""

    def __init__(self):
        super().__init__()
        self.point = nn.Sequential(nn.Linear(2, 24), nn.ReLU(), nn.Linear(24, 32), nn.ReLU())
        self.cloud = nn.Linear(32, 4)
        for m in self.point:
            if isinstance(m, nn.Linear):
                nn.init.constant_(m.bias, START)

    def forward(self, cloud):
        return self.cloud(self.point(cloud).amax(1))


g = torch.Generator().manual_seed(40)
y = torch.randint(0, 4, (32 * 250,), generator=g)
wide = torch.tensor([[1.0, 1.0], [2.0, 1.0], [1.0, 2.0], [2.0, 2.0]])[y]
clouds = wide[:, None] * torch.randn(len(y), 24, 2, generator=g)
net = PointNet()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for step, (c, lab) in enumerate(DataLoader(TensorDataset(clouds, y), batch_size=32, shuffle=True), 1):
    loss = nn.functional.cross_entropy(net(c), lab)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step == 1 or step % 25 == 0:
        print(f"step {step} loss {loss.item():.4f}")
