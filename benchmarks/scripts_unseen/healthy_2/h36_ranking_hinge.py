# expect: healthy
# fault: none
# note: pairwise ranking hinge; the loss reaches zero for most pairs as it should.
import torch
from torch import nn

torch.manual_seed(36)
users, items = nn.Embedding(60, 12), nn.Embedding(80, 12)
U, I = torch.randn(60, 4), torch.randn(80, 4)
opt = torch.optim.Adagrad([*users.parameters(), *items.parameters()], lr=0.1)
loss_fn = nn.MarginRankingLoss(margin=0.5)
for s in range(250):
    u, a, b = torch.randint(0, 60, (128,)), torch.randint(0, 80, (128,)), torch.randint(0, 80, (128,))
    t = ((U[u] * I[a]).sum(1) > (U[u] * I[b]).sum(1)).float() * 2 - 1
    sa, sb = (users(u) * items(a)).sum(1), (users(u) * items(b)).sum(1)
    loss = loss_fn(sa, sb, t)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if s % 25 == 0:
        print(s, round(loss.item(), 4))
