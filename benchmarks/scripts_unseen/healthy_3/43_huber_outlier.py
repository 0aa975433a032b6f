# expect: healthy
# fault: batches with wild targets
# note: 6 % of the targets are gross outliers (sensor faults, known); Huber loss holds, the single losses are spiky and the clean error falls.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(71)
net = nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
opt = torch.optim.Adam(net.parameters(), lr=4e-3)
crit = nn.HuberLoss(delta=0.5)
for step in range(220):
    x = torch.rand(96, 5) * 2 - 1
    clean = torch.sin(3 * x[:, 0]) + x[:, 1] * x[:, 2]
    bad = torch.rand(96) < 0.06
    y = torch.where(bad, torch.randn(96) * 15, clean + 0.05 * torch.randn(96))
    pred = net(x).squeeze(1)
    loss = crit(pred, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(step, f"loss {loss.item():.4f} clean error {(pred - clean).abs().mean().item():.4f}")
