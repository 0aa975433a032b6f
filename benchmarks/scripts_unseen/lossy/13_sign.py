# EXPECT: sick
# FAULT: sign of the loss flipped for three steps
# ONSET: 76
# SAYS: sign|ascent|loss|gradient|negative
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(213)

user, item = nn.Embedding(100, 12), nn.Embedding(80, 12)
for e in (user, item):
    nn.init.normal_(e.weight, std=0.3)
opt = torch.optim.Adagrad([*user.parameters(), *item.parameters()], lr=0.1)
tu, ti = torch.randn(100, 4), torch.randn(80, 4)
for step in range(150):
    u, i = torch.randint(0, 100, (256,)), torch.randint(0, 80, (256,))
    y = ((tu[u] * ti[i]).sum(1) > 0).float()
    logit = (user(u) * item(i)).sum(1)
    bce = nn.functional.binary_cross_entropy_with_logits(logit, y)
    weight = -8.0 if 75 <= step < 78 else 1.0
    opt.zero_grad()
    (weight * bce).backward()
    opt.step()
    if step % 10 == 0 or 74 <= step < 80:
        print(step, f"{bce.item():.4f}")
