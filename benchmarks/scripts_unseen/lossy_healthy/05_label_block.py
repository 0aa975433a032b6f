# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
import torch
from torch import nn
from torch.utils.data import Dataset, DataLoader

torch.set_num_threads(1)


class Shards(Dataset):
    def __init__(self, n=160, bs=32):
        g = torch.Generator().manual_seed(5)
        c = torch.randn(8, 24, generator=g)
        self.shards = []
        for k in range(n):
            y = torch.randint(0, 8, (bs,), generator=g)
            x = c[y] + 1.1 * torch.randn(bs, 24, generator=g)
            self.shards.append((x, y))

    def __len__(self):
        return len(self.shards)

    def __getitem__(self, i):
        return self.shards[i]


torch.manual_seed(205)
model = nn.Sequential(nn.Linear(24, 96), nn.GELU(), nn.Linear(96, 8))
opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
for i, (x, y) in enumerate(DataLoader(Shards(), batch_size=None)):
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if i % 10 == 0:
        print(i, loss.item())
