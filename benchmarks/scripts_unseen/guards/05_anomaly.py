# EXPECT: sick
# FAULT: 0/0 in a normalisation, detect_anomaly raises
# ONSET: 31
# SAYS: nan|NaN|non-finite|norm|div
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(305)


def unit(v):
    return v / v.norm(dim=-1, keepdim=True)


proj = nn.Linear(16, 8, bias=False)
cls = nn.Linear(8, 4)
opt = torch.optim.SGD([*proj.parameters(), *cls.parameters()], lr=0.2)
mu = torch.randn(4, 16)
with torch.autograd.set_detect_anomaly(True):
    for step in range(60):
        y = torch.randint(0, 4, (32,))
        x = mu[y] + 0.4 * torch.randn(32, 16)
        if step == 30:
            x[11] = 0  # blank record
        loss = nn.functional.cross_entropy(cls(unit(proj(x))), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            print("step", step, "loss %.4f" % loss.item())
