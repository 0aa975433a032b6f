# expect: healthy
# symptom: resembles a softmax over the wrong axis: log_softmax over dim 0
# note: in-batch contrast in both directions needs both axes
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(2)
g = torch.Generator().manual_seed(1)
code = torch.randn(64 * 250, 6, generator=g)
a = code @ torch.randn(6, 20, generator=g) + 0.3 * torch.randn(len(code), 20, generator=g)
b = torch.tanh(code @ torch.randn(6, 16, generator=g))
left = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 16))
right = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
opt = torch.optim.Adam([*left.parameters(), *right.parameters()], lr=2e-3)
for step, (xa, xb) in enumerate(DataLoader(TensorDataset(a, b), batch_size=64, shuffle=True), 1):
    sim = left(xa) @ right(xb).T / 4
    loss = -(sim.log_softmax(0).diagonal() + sim.log_softmax(1).diagonal()).mean() / 2
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 25 == 0:
        print("step", step, "loss", round(loss.item(), 4))
