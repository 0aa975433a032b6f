# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(50)

USERS, ITEMS, D = 20000, 8000, 16
tu, ti = torch.randn(USERS, 4), torch.randn(ITEMS, 4)


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.u = nn.Embedding(USERS, D, sparse=True)
        self.i = nn.Embedding(ITEMS, D, sparse=True)
        self.wu = nn.Linear(D + 4, D)
        self.wi = nn.Linear(D + 4, D)

    def forward(self, u, i):
        a = self.wu(torch.cat([self.u(u) * 0.1, tu[u]], 1))
        b = self.wi(torch.cat([self.i(i) * 0.1, ti[i]], 1))
        return (a * b).sum(1)


m = TwoTower()
sparse_opt = torch.optim.SparseAdam([m.u.weight, m.i.weight], lr=1e-3)
dense_opt = torch.optim.Adam([*m.wu.parameters(), *m.wi.parameters()], lr=1e-2)
for step in range(120):
    u, i = torch.randint(0, USERS, (256,)), torch.randint(0, ITEMS, (256,))
    y = ((tu[u] * ti[i]).sum(1) > 0).float()
    loss = F.binary_cross_entropy_with_logits(m(u, i), y)
    sparse_opt.zero_grad()
    dense_opt.zero_grad()
    loss.backward()
    sparse_opt.step()
    dense_opt.step()
    if step % 20 == 0:
        print(f"step {step:4d} bce {loss.item():.4f}")
