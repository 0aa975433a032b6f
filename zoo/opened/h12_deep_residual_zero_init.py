# expect: healthy
# symptom: resembles a missing residual scale: 30 full branches without a norm
# note: the last layer of every branch starts at 0
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(40)


class Branch(nn.Module):
    def __init__(self, w=32):
        super().__init__()
        self.a, self.b = nn.Linear(w, w), nn.Linear(w, w)
        nn.init.zeros_(self.b.weight)
        nn.init.zeros_(self.b.bias)

    def forward(self, x):
        return x + self.b(torch.relu(self.a(x)))


g = torch.Generator().manual_seed(14)
x = torch.randn(64 * 200, 20, generator=g)
y = (x @ torch.randn(20, 8, generator=g)).argmax(1)
net = nn.Sequential(nn.Linear(20, 32), *[Branch() for _ in range(30)], nn.Linear(32, 8))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step, (xb, yb) in enumerate(DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True), 1):
    loss = nn.functional.cross_entropy(net(xb), yb)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
