# expect: healthy
# symptom: resembles overshooting steps: the loss rises in some steps, the rate is 0.5 with plain SGD
# note: a high but stable rate; the loss falls over the run
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(12)
g = torch.Generator().manual_seed(3)
x = torch.randn(64 * 220, 10, generator=g)
y = (x[:, 0] * x[:, 1] + x[:, 2] > 0).long()
net = nn.Sequential(nn.Linear(10, 48), nn.Tanh(), nn.Linear(48, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.5)
for step, (xb, yb) in enumerate(DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True), 1):
    opt.zero_grad()
    loss = nn.functional.cross_entropy(net(xb), yb)
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(f"step {step:3d} loss {loss.item():.4f}")
