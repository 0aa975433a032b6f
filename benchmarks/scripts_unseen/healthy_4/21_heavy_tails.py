# expect: healthy
# cause: none, heavy-tailed claims with a Student-t likelihood whose loss stays smooth although single targets are a hundred times the median
import torch
from torch import nn

torch.manual_seed(210)


def policies(n):
    x = torch.randn(n, 8)
    centre = 1.5 * x[:, 0] + torch.sin(2 * x[:, 1]) + x[:, 2] * x[:, 3].sigmoid()
    scale = 0.2 + 0.2 * x[:, 4].sigmoid()
    noise = torch.distributions.StudentT(1.7).sample((n,))
    return x, centre + scale * noise, centre


class Claims(nn.Module):
    """location and log scale of a t distribution with fixed degrees of freedom"""

    def __init__(self, df=2.0):
        super().__init__()
        self.df = df
        self.net = nn.Sequential(nn.Linear(8, 96), nn.GELU(), nn.Linear(96, 96), nn.GELU(), nn.Linear(96, 2))

    def forward(self, x):
        mu, raw = self.net(x).unbind(1)
        return mu, raw.clamp(-4, 4)

    def nll(self, x, y):
        mu, ls = self(x)
        return -torch.distributions.StudentT(self.df, mu, ls.exp()).log_prob(y).mean()


x, y, _ = policies(8000)
xt, yt, ct = policies(2000)
print(f"targets: median size {y.abs().median():.2f}, largest {y.abs().max():.1f}")
model = Claims()
opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-3)
for step in range(400):
    i = torch.randint(0, 8000, (128,))
    loss = model.nll(x[i], y[i])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 49:
        with torch.no_grad():
            gap = (model(xt)[0] - ct).abs().median().item()
        print(
            f"step {step + 1} nll {loss.item():.4f} test nll {model.nll(xt, yt).item():.4f} median error of the centre {gap:.3f}"
        )
