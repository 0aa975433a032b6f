# expect: healthy
# symptom: large numbers in float32, which look as if their fine part mattered
# axis: none
# mended: none
import torch
from torch import nn

torch.manual_seed(13)

DAYS, SHOPS = 30, 200


def ledger():
    """Till balance in cents at the end of each day; it stays under 100 000 euros."""
    rate = torch.randint(-2500, 4000, (SHOPS, 1))
    daily = rate + torch.randint(-300, 301, (SHOPS, DAYS))
    opening = torch.randint(2_000_000, 8_000_000, (SHOPS, 1))
    return opening + daily.cumsum(dim=1)


cents = ledger()
balance = cents.to(torch.float32)
change = balance[:, 1:] - balance[:, :-1]
loose = torch.remainder(balance, 100.0)
print("largest balance", int(balance.max()), "limit", 2**24)

window, target = change[:, :14] / 1000.0, change[:, 14:].mean(dim=1, keepdim=True) / 1000.0
coins = loose[:, 14:15] / 100.0
features = torch.cat([window, coins], dim=1)


class Forecast(nn.Module):
    def __init__(self, n_in):
        super().__init__()
        self.linear = nn.Linear(n_in, 1)
        self.residual = nn.Sequential(nn.Linear(n_in, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x):
        return self.linear(x) + 0.1 * self.residual(x)


net = Forecast(features.shape[1])
optim = torch.optim.Adam(net.parameters(), lr=5e-3)
train, test = slice(0, 160), slice(160, None)

for step in range(1, 121):
    pick = torch.randint(0, 160, (40,))
    loss = (net(features[train][pick]) - target[train][pick]).square().mean()
    optim.zero_grad()
    loss.backward()
    optim.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.5f}")

with torch.no_grad():
    test_loss = (net(features[test]) - target[test]).square().mean()
print(f"test loss {test_loss.item():.5f}")
