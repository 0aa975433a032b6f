# expect: healthy
# symptom: resembles a large initialisation: the loss starts in the thousands
# note: the targets are in raw units (prices), the model gets there without any fault
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(100)
g = torch.Generator().manual_seed(9)
x = torch.randn(64 * 260, 8, generator=g)
price = 60 + 10 * x[:, 0] - 6 * x[:, 1] + 4 * torch.relu(x[:, 2]) + torch.randn(len(x), generator=g)
net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.Adam(net.parameters(), lr=3e-2)
for step, (xb, yb) in enumerate(DataLoader(TensorDataset(x, price), batch_size=64, shuffle=True), 1):
    loss = nn.functional.mse_loss(net(xb).squeeze(1), yb)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(f"step {step} mse {loss.item():.2f}")
