# expect: sick
# fault: corrupted batches for a while (gain 40 instead of 1)
# onset_step: 60
# says: (?i)(loss|gradient|input|batch|data|progress|spike|diverg)
# note: one shard of the recordings (batches 60 to 71) was stored in millivolt, 40 times the scale of the others.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(3)


class Shards:
    def __init__(self, n):
        self.n = n
        self.k = torch.randn(6, 48)

    def __iter__(self):
        for i in range(self.n):
            y = torch.randint(0, 6, (32,))
            x = self.k[y] * 0.7 + torch.randn(32, 48)
            if 60 <= i < 72:
                x = x * 40
            yield x, y


model = nn.Sequential(nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 6))
opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
for i, (x, y) in enumerate(Shards(170)):
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if i % 10 == 0:
        print(i, f"{loss.item():.4f}")
