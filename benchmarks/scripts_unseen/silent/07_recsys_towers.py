# EXPECT: sick
# FAULT: item tower forgotten in the optimizer
# ONSET: 1
# SAYS: not in any optimizer|no optimizer|optimizer|item
import random
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
random.seed(0)
torch.manual_seed(0)

N_USERS, N_ITEMS, K = 100, 80, 16

# ground truth preferences
U = torch.randn(N_USERS, 5)
V = torch.randn(N_ITEMS, 5)


def sample_pairs(bs):
    u = torch.randint(N_USERS, (bs,))
    i = torch.randint(N_ITEMS, (bs,))
    y = ((U[u] * V[i]).sum(1) > 0).float()
    return u, i, y


class Tower(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.table = nn.Embedding(n, K)
        self.mlp = nn.Sequential(nn.Linear(K, 32), nn.ReLU(), nn.Linear(32, K))

    def forward(self, ids):
        return self.mlp(self.table(ids))


user_tower = Tower(N_USERS)
item_tower = Tower(N_ITEMS)
optimizer = torch.optim.Adam(user_tower.parameters(), lr=1e-2)

running = 0
for step in range(1, 151):
    u, i, y = sample_pairs(512)
    score = (user_tower(u) * item_tower(i)).sum(-1)
    loss = F.binary_cross_entropy_with_logits(score, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    running += loss.item()
    if step % 25 == 0:
        print(f"step={step} avg_bce={running / 25:.4f}")
        running = 0
