# expect: healthy
# fault: corrupted batches for a while (gain 40 instead of 1)
# note: the same script as loud/ of this name without the event.
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
