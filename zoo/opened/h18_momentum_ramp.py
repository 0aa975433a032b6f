# expect: healthy
# symptom: resembles a momentum too high: raised from 0.5 to 0.97 at step 20
# note: the rate is cut tenfold at the same time; the loss goes on falling
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(25)
g = torch.Generator().manual_seed(13)
y = torch.randint(0, 10, (64 * 200,), generator=g)
x = torch.randn(10, 1, 8, 8, generator=g)[y] + 0.9 * torch.randn(len(y), 1, 8, 8, generator=g)
net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10))
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.5)
for step, (xb, yb) in enumerate(DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True), 1):
    if step == 20:
        opt.param_groups[0].update(momentum=0.97, lr=0.005)
    loss = nn.functional.cross_entropy(net(xb), yb)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
