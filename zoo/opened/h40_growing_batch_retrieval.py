# expect: healthy
# symptom: the contrastive loss jumps up at steps 200 and 400 (the batch is doubled, so there are more negatives), as if the run had been disturbed
# axis: schedule
# cause: none
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(73)
mix_a, mix_b = torch.randn(10, 40), torch.randn(10, 30)


def pairs(n):
    z = torch.randn(n, 10)
    return torch.tanh(z @ mix_a) + 0.5 * torch.randn(n, 40), torch.tanh(z @ mix_b) + 0.5 * torch.randn(n, 30)


class Tower(nn.Module):
    def __init__(self, i):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(i, 96), nn.ReLU(), nn.Linear(96, 24))

    def forward(self, x):
        return F.normalize(self.f(x), dim=1)


left, right = Tower(40), Tower(30)
opt = torch.optim.Adam([*left.parameters(), *right.parameters()], lr=1e-3)
va, vb = pairs(500)
for step in range(600):
    n = 32 * 4 ** (step // 200)
    a, b = pairs(n)
    s = left(a) @ right(b).T / 0.1
    loss = (F.cross_entropy(s, torch.arange(n)) + F.cross_entropy(s.T, torch.arange(n))) / 2
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0 or step == 599:
        with torch.no_grad():
            hit = ((left(va) @ right(vb).T).argmax(1) == torch.arange(500)).float().mean().item()
        print(f"step {step} batch {n} loss {loss.item():.4f} recall@1 of 500: {hit:.3f}")
