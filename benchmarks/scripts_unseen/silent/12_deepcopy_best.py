# EXPECT: sick
# FAULT: optimizer holds the old model's tensors after a deepcopy
# ONSET: 1
# SAYS: optimizer|stale|not in any optimizer|no grad
import copy
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(77)


class Regressor(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(d, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU())
        self.out = nn.Linear(64, 2)

    def forward(self, x):
        return self.out(self.body(x))


def target(x):
    return torch.stack([torch.sin(x[:, 0] * 2) + x[:, 1], x[:, 2] * x[:, 3]], 1)


cfg = dict(lr=3e-3, wd=1e-4, bs=96, steps=120)
template = Regressor(6)
optimizer = torch.optim.AdamW(template.parameters(), lr=cfg["lr"], weight_decay=cfg["wd"])

# keep the template clean so that we can restart from it in the sweep
model = copy.deepcopy(template)
model.train()

history = []
for step in range(cfg["steps"]):
    x = torch.randn(cfg["bs"], 6)
    pred = model(x)
    loss = ((pred - target(x)) ** 2).mean()
    model.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(loss.item())
    if step % 15 == 14:
        print(f"{step + 1:>4} | {sum(history[-15:]) / 15:.4f}")
