# expect: sick
# symptom: loss multiplies at step 121 after the batch of step 120 and stays above its level for long
# axis: data
# cause: the batch of step 120 is corrupted: raw pixel counts up to 4000 instead of values around 1
# says: (?i)(corrupt|bad|broken|damaged|outl|unscaled|raw|extreme|abnormal|faulty|poison)\w*.{0,60}(batch|rows?|data|input|pixel|image|value)|(batch|rows?|data|inputs?|pixels?|images?).{0,60}(corrupt|\bbad\b|broken|damaged|outl|unscaled|\braw\b|extreme|abnormal|at fault)
# onset_step: 120
# fix: drop the batch of step 120
# mended: MENDED=1 python s36_vit_scanner.py
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

torch.set_num_threads(1)
torch.manual_seed(38)


class Scans(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(23)
        self.y = torch.randint(0, 5, (n,), generator=g)
        self.x = 0.7 * torch.randn(5, 3, 8, 8, generator=g)[self.y] + torch.randn(n, 3, 8, 8, generator=g)
        block = slice(119 * 32, 120 * 32)
        self.x[block] = torch.randint(0, 4000, (32, 3, 8, 8), generator=g).float()

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class ViT(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.patch = nn.Conv2d(3, d, 2, stride=2)
        self.pos = nn.Parameter(0.02 * torch.randn(1, 16, d))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(d, 2, 64, 0.0, batch_first=True, norm_first=True) for _ in range(2)
        )
        self.head = nn.Linear(d, 5)

    def forward(self, x):
        z = self.patch(x).flatten(2).transpose(1, 2) + self.pos
        for layer in self.layers:
            z = layer(z)
        return self.head(z.mean(1))


data = Scans(32 * 240)
if os.environ.get("MENDED") == "1":
    data = Subset(data, [i for i in range(len(data)) if not 119 * 32 <= i < 120 * 32])
net = ViT()
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
for step, (x, y) in enumerate(DataLoader(data, batch_size=32), 1):
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 15 == 0 or 118 < step < 125:
        print(f"step {step} loss {loss.item():.4f}")
