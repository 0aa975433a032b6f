# expect: sick
# cause: The inputs go in with their raw units (years near 2000, incomes near 50000), so the tanh units are saturated and the net predicts the mean.
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(88)
n = 5000
area = 30 + 120 * torch.rand(n)
year = 1900 + 120 * torch.rand(n)
rooms = (area / 28).round().clamp(1, 6)
income = 30000 + 40000 * torch.rand(n)
distance = 15000 * torch.rand(n)
floor = torch.randint(0, 8, (n,)).float()
rent = (
    8 * area * (1 + (income - 50000) / 60000) * (1.15 - 0.00004 * distance)
    + 0.03 * (year - 1960) ** 2
    + 15 * floor
    + 30 * rooms
    + 40 * torch.randn(n)
)
features = torch.stack([area, year, rooms, income, distance, floor], 1)
target = ((rent - rent.mean()) / rent.std()).unsqueeze(1)

train_dl = DataLoader(TensorDataset(features[:4000], target[:4000]), batch_size=100, shuffle=True)
x_val, y_val = features[4000:], target[4000:]


class RentNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden1 = nn.Linear(6, 96)
        self.hidden2 = nn.Linear(96, 96)
        self.output = nn.Linear(96, 1)

    def forward(self, x):
        x = torch.tanh(self.hidden1(x))
        x = torch.tanh(self.hidden2(x))
        return self.output(x)


net = RentNet()
opt = optim.Adam(net.parameters(), lr=2e-3)
mse = nn.MSELoss()
for epoch in range(1, 11):
    for xb, yb in train_dl:
        opt.zero_grad()
        loss = mse(net(xb), yb)
        loss.backward()
        opt.step()
    with torch.no_grad():
        val = mse(net(x_val), y_val).item()
    print(
        f"epoch {epoch:2d} last batch {loss.item():.4f} validation mse {val:.4f} R2 {1 - val / y_val.var().item():.3f}"
    )
