# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
import math
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(206)


def schedule(step):
    if step < 150:
        return 3e-3 * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / 150)))
    # continual phase
    return 5e-4 * min(1.0, (step - 149) / 10)


net = nn.Sequential(nn.Linear(10, 80), nn.Tanh(), nn.Linear(80, 80), nn.Tanh(), nn.Linear(80, 4))
opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
A = torch.randn(10, 4)
for step in range(220):
    for g in opt.param_groups:
        g["lr"] = schedule(step)
    x = torch.randn(64, 10)
    loss = (net(x) - torch.sin(x @ A * 0.5)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 15 == 0:
        print(f"{step} mse {loss.item():.5f}")
