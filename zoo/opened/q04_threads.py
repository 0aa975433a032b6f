# expect: healthy
# axis: none
# symptom: whole hidden units are cut to zero and all rows are scaled back to the norm they had, in the middle of the run
# cause: safe form: the ratio is taken only where the row that is left is not zero; rows cut away stay at zero and the loss stays finite
import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)


def threads(n, g):
    """Tension along a thread, 80 readings, of four spinning machines."""
    t = np.arange(80)
    kind = g.integers(4, size=n)
    out = np.empty((n, 80), dtype=np.float32)
    for i, k in enumerate(kind):
        f, a = g.uniform(0.25, 0.35), g.uniform(0, 0.8)
        wave = np.sin(f * t + a)
        out[i] = [wave, np.sign(wave), np.abs(wave) - 0.6, wave**3][k] + 0.4 * g.normal(size=80)
    return torch.from_numpy(out), torch.from_numpy(kind)


class Reader(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        self.one = nn.Linear(80, width)
        self.two = nn.Linear(width, width)
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        x = torch.relu(self.one(x))
        x = torch.relu(self.two(x))
        return self.head(x)


@torch.no_grad()
def thin(layer, share):
    """Zero the smallest weights of a layer and the weakest rows, keep the norm of each row that is left."""
    w = layer.weight
    gain = w.norm(dim=1)
    limit = torch.quantile(w.abs().flatten()[::4], share)
    weak = gain <= torch.quantile(gain, share / 4)
    w.mul_(w.abs() > limit)
    w[weak] = 0.0
    left = w.norm(dim=1)
    ratio = torch.where(left > 0, gain / left.clamp(min=1e-12), torch.zeros_like(left))
    w.mul_(ratio[:, None])
    return int((left == 0).sum())


def main():
    torch.manual_seed(41)
    g = np.random.default_rng(41)
    x, y = threads(3000, g)
    net = Reader()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.05)
    for step in range(500):
        pick = torch.from_numpy(g.integers(len(x), size=64))
        loss = nn.functional.cross_entropy(net(x[pick]), y[pick])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step >= 100 and step % 20 == 0 and step <= 400:
            share = 0.8 * (step - 80) / 320
            empty = [thin(layer, share) for layer in (net.one, net.two)]
            print(f"step {step:3d}  share {share:.2f}  empty rows {empty}")
        if step % 20 == 0:
            print(f"step {step:3d}  loss {loss.item():.4f}", flush=True)
    with torch.no_grad():
        x, y = threads(500, g)
        print(f"held out loss {nn.functional.cross_entropy(net(x), y).item():.4f}")


if __name__ == "__main__":
    main()
