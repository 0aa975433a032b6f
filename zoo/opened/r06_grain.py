# expect: sick
# axis: harness
# symptom: validation is much worse than it should be and jumps; the best weights, scored again on the same samples, give another number each time, so the chosen epoch is partly luck
# cause: the overridden train() of the net, written to hold the input norm fixed, ignores its mode argument, so net.eval() leaves dropout on while the score that picks the checkpoint is taken
# says: dropout.{0,200}(eval|validat|scor|still|on\b|active|training mode|train mode|stays|checkpoint|best|not (off|disabled|turned))|(eval\w*|validat\w*|train\(\)|training mode|train mode|\bmode\b).{0,200}(dropout|ignor|train(ing)? mode|stochastic|noisy|random|no effect|overrid)
# onset_step: 0
# fix: let train() pass its mode on
# mended: the overridden train() hands its mode argument on
import copy
import os

import numpy as np
import torch
from torch import nn

ALT = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

BANDS, SORTS = 90, 6


def spectra(n, g, base):
    """Reflectance of grain, 90 bands, six sorts that differ by small smooth shapes."""
    sort = g.integers(SORTS, size=n)
    light = g.uniform(0.7, 1.3, (n, 1))
    drift = g.normal(0, 0.4, (n, 1)) * np.linspace(-1, 1, BANDS)
    x = light * base[sort] + drift + 1.5 * g.normal(size=(n, BANDS))
    return torch.tensor(x, dtype=torch.float32), torch.tensor(sort)


class Sorter(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.norm = nn.BatchNorm1d(BANDS, affine=False)
        self.net = nn.Sequential(
            nn.Linear(BANDS, width),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(width, SORTS),
        )

    def calibrate(self, x):
        self.norm.running_mean.copy_(x.mean(0))
        self.norm.running_var.copy_(x.var(0))
        return self

    def train(self, mode=True):
        """The statistics of the input are measured once and then held."""
        super().train(mode) if ALT else super().train()
        self.norm.eval()
        return self

    def forward(self, x):
        return self.net(self.norm(x))


@torch.no_grad()
def score(net, x, y):
    net.eval()
    return nn.functional.cross_entropy(net(x), y).item()


def fit(net, train, val, epochs=30, batch=64):
    x, y = train
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    best = {"score": float("inf")}
    for e in range(epochs):
        net.train()
        seen = []
        for part in torch.randperm(len(x)).split(batch):
            loss = nn.functional.cross_entropy(net(x[part]), y[part])
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen.append(loss.item())
        now = score(net, *val)
        star = ""
        if now < best["score"]:
            best = {"score": now, "epoch": e, "state": copy.deepcopy(net.state_dict())}
            star = " *"
        print(f"epoch {e:2d}  loss {np.mean(seen):.4f}  validation {now:.4f}{star}", flush=True)
    return best


def main():
    torch.manual_seed(101)
    g = np.random.default_rng(101)
    wave = np.linspace(0, 3.14, BANDS)
    base = sum(g.normal(0, 0.35, (SORTS, 1)) * np.sin(k * wave + k) for k in range(1, 9))
    train, val, test = spectra(1000, g, base), spectra(80, g, base), spectra(1000, g, base)
    net = Sorter().calibrate(train[0])
    best = fit(net, train, val)
    net.load_state_dict(best["state"])
    again = [round(score(net, *val), 4) for _ in range(4)]
    print(f"best epoch {best['epoch']} validation {best['score']:.4f}, scored again {again}")
    print(f"test {score(net, *test):.4f}")


if __name__ == "__main__":
    main()
