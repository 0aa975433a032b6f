# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
"""bf16 working weights, fp32 master weights in the optimizer."""

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(99)

model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 5)).to(torch.bfloat16)
master = [p.detach().clone().float().requires_grad_(True) for p in model.parameters()]
opt = torch.optim.AdamW(master, lr=2e-3)
mu = torch.randn(5, 16)

for step in range(130):
    y = torch.randint(0, 5, (64,))
    x = (mu[y] + 1.2 * torch.randn(64, 16)).to(torch.bfloat16)
    loss = nn.functional.cross_entropy(model(x).float(), y)
    loss.backward()
    for m, p in zip(master, model.parameters()):
        m.grad = p.grad.float()
        p.grad = None
    opt.step()
    opt.zero_grad()
    with torch.no_grad():
        for m, p in zip(master, model.parameters()):
            p.copy_(m)
    if step % 20 == 0:
        print("step", step, "loss", round(loss.item(), 4))
