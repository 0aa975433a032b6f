# expect: healthy
# cause: none, a summed Poisson deviance over thousands of counts, so the loss is in the tens of thousands and the rate of SGD is accordingly tiny
import torch
from torch import nn

torch.manual_seed(18)
ROWS, FEATS = 6000, 10
x = torch.randn(ROWS, FEATS)
log_rate = 4.5 + 0.4 * torch.sin(1.5 * x[:, 0]) + 0.2 * x[:, 1] - 0.3 * x[:, 2].tanh() + 0.2 * x[:, 4].abs()
counts = torch.poisson(log_rate.exp())
train, test = slice(0, 5000), slice(5000, ROWS)


class CountNet(nn.Module):
    def __init__(self, start):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(FEATS, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))
        nn.init.constant_(self.f[-1].bias, start)

    def forward(self, x):
        return self.f(x).squeeze(1)


def deviance(log_mu, y):
    ratio = torch.where(y > 0, y * (y.clamp(min=1).log() - log_mu), torch.zeros_like(y))
    return 2 * (ratio - (y - log_mu.exp()))


model = CountNet(counts[train].mean().log().item())
opt = torch.optim.SGD(model.parameters(), lr=6e-7, momentum=0.9)
null = deviance(torch.full_like(counts[test], counts[train].mean().log().item()), counts[test]).mean().item()
for step in range(300):
    take = torch.randint(0, 5000, (2500,))
    loss = deviance(model(x[take]), counts[take]).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 29:
        with torch.no_grad():
            dev = deviance(model(x[test]), counts[test]).mean().item()
        print(
            f"step {step + 1} summed deviance {loss.item():.0f} test deviance per district {dev:.2f} (mean only {null:.2f}, noise about 1)"
        )
