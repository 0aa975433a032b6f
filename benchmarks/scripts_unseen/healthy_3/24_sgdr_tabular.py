# expect: healthy
# fault: a rate that jumps up by a factor of hundreds
# note: CosineAnnealingWarmRestarts(T_0=40): the rate jumps from nearly 0 to its peak at every restart, the loss rises for some steps.
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(47)
X = torch.randn(2400, 12)
y = (X[:, 0] * X[:, 1] + torch.sin(2 * X[:, 2]) + 0.3 * torch.randn(2400) > 0).float()[:, None]
loader = DataLoader(TensorDataset(X, y), batch_size=60, shuffle=True)
net = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)
sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=40, eta_min=5e-4)
step = 0
for epoch in range(5):
    for xb, yb in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(net(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(step, f"{loss.item():.4f}", f"{opt.param_groups[0]['lr']:.4f}")
        step += 1
