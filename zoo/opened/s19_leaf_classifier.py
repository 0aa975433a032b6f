# expect: sick
# symptom: ValueError: Expected more than 1 value per channel when training, at step 20 (last batch of the epoch)
# axis: data
# cause: the last batch of the epoch holds a single row, batch norm in training mode cannot work with one
# says: (?i)batch (size )?(of|with|holds|has) (only )?(one|1|a single)\b|(one|single|1)[- ](row|sample)|drop_last|more than 1 value
# onset_step: 20
# fix: drop_last=True in the loader
# mended: MENDED=1 python s19_leaf_classifier.py
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(19)


class Leaves(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(10)
        self.y = torch.randint(0, 5, (n,), generator=g)
        proto = torch.randn(5, 3, 10, 10, generator=g)
        self.x = 0.5 * proto[self.y] + torch.randn(n, 3, 10, 10, generator=g)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


net = nn.Sequential(
    nn.Conv2d(3, 16, 3, stride=2, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.Conv2d(16, 24, 3, stride=2, padding=1),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(2),
    nn.Flatten(),
    nn.Linear(96, 32),
    nn.BatchNorm1d(32),
    nn.ReLU(),
    nn.Linear(32, 5),
)
data = Leaves(19 * 32 + 1)
loader = DataLoader(data, batch_size=32, shuffle=True, drop_last=os.environ.get("MENDED") == "1")
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
step = 0
for epoch in range(10):
    net.train()
    for x, y in loader:
        step += 1
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 5 == 0:
            print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
