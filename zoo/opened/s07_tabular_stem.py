# expect: sick
# symptom: loss starts at tens instead of ln 5 (1.6) and is still far above it after 250 steps
# axis: model
# cause: the first layer is initialised with a standard deviation of 30, far too large
# says: (?i)\b(initiali[sz]|init\b|re-?init)|first layer.{0,40}(std|scale|large)
# onset_step: 1
# fix: initialise the stem with std 0.1 instead of 30
# mended: MENDED=1 python s07_tabular_stem.py
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(100)


class Net(nn.Module):
    def __init__(self, n_in=24, width=64, n_out=5):
        super().__init__()
        self.stem = nn.Linear(n_in, width)
        self.mid = nn.ModuleList([nn.Linear(width, width) for _ in range(3)])
        self.head = nn.Linear(width, n_out)
        self.reset()

    def reset(self):
        std = 0.1 if os.environ.get("MENDED") == "1" else 30.0
        nn.init.normal_(self.stem.weight, std=std)
        nn.init.zeros_(self.stem.bias)
        for layer in self.mid:
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")

    def forward(self, x):
        x = torch.relu(self.stem(x))
        for layer in self.mid:
            x = torch.relu(layer(x))
        return self.head(x)


g = torch.Generator().manual_seed(9)
x = torch.randn(64 * 260, 24, generator=g)
y = (x @ torch.randn(24, 5, generator=g)).argmax(1)
train = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
model = Net()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step, (xb, yb) in enumerate(train, 1):
    loss = nn.functional.cross_entropy(model(xb), yb)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    if step == 1 or step % 25 == 0:
        print(f"step {step}: {loss.item():.3f}")
