# expect: healthy
# axis: none
# symptom: dropout is switched on while the validation set is passed through the net, and these numbers vary
# cause: on purpose: Monte Carlo dropout gives the spread of the predictions; the best checkpoint is chosen by the ordinary score with dropout off
import copy

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)

BANDS = 90


def spectra(n, g, shapes):
    """Reflectance of kernels, 90 bands, and their moisture."""
    wet = g.normal(size=n)
    oil = g.normal(size=n)
    x = wet[:, None] * shapes[0] + oil[:, None] * shapes[1] + (wet * oil)[:, None] * shapes[2]
    x = g.uniform(0.8, 1.2, (n, 1)) * x + 0.4 * g.normal(size=(n, BANDS))
    return torch.tensor(x, dtype=torch.float32), torch.tensor(wet, dtype=torch.float32)


class Moisture(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.norm = nn.BatchNorm1d(BANDS, affine=False)
        self.net = nn.Sequential(
            nn.Linear(BANDS, width),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(width, 1),
        )

    def calibrate(self, x):
        self.norm.running_mean.copy_(x.mean(0))
        self.norm.running_var.copy_(x.var(0))
        return self

    def train(self, mode=True):
        """The statistics of the input are measured once and then held."""
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x):
        return self.net(self.norm(x)).squeeze(1)


@torch.no_grad()
def score(net, x, y):
    net.eval()
    return nn.functional.mse_loss(net(x), y).item()


@torch.no_grad()
def spread(net, x, draws=30):
    """Mean and spread of the prediction over many thinned nets."""
    net.eval()
    for m in net.modules():
        if isinstance(m, nn.Dropout):
            m.train()
    out = torch.stack([net(x) for _ in range(draws)])
    net.eval()
    return out.mean(0), out.std(0)


def fit(net, train, val, epochs=25, batch=64):
    x, y = train
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    best = {"score": float("inf")}
    for e in range(epochs):
        net.train()
        seen = []
        for part in torch.randperm(len(x)).split(batch):
            loss = nn.functional.mse_loss(net(x[part]), y[part])
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen.append(loss.item())
        now = score(net, *val)
        mean, sd = spread(net, val[0])
        if now < best["score"]:
            best = {"score": now, "epoch": e, "state": copy.deepcopy(net.state_dict())}
        within = ((mean - val[1]).abs() < 2 * sd).float().mean().item()
        print(
            f"epoch {e:2d}  loss {np.mean(seen):.4f}  validation {now:.4f}  spread {sd.mean().item():.3f}  within two {within:.2f}",
            flush=True,
        )
    return best


def main():
    torch.manual_seed(111)
    g = np.random.default_rng(111)
    wave = np.linspace(0, 3.14, BANDS)
    shapes = [np.sin(k * wave + k) * 0.6 for k in (1, 2, 4)]
    train, val, test = spectra(1200, g, shapes), spectra(300, g, shapes), spectra(1000, g, shapes)
    net = Moisture().calibrate(train[0])
    best = fit(net, train, val)
    net.load_state_dict(best["state"])
    print(f"best epoch {best['epoch']} validation {best['score']:.4f}, again {score(net, *val):.4f}")
    mean, sd = spread(net, test[0])
    print(f"test {score(net, *test):.4f}  mean spread {sd.mean().item():.3f}")


if __name__ == "__main__":
    main()
