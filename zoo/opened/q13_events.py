# expect: healthy
# symptom: none (new head on a trained backbone, gradual unfreezing)
# axis: none
# mended: none
"""Event classifier: a recurrent backbone and a new head. Head first, then more of the network, part by part."""

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(19)
rng = np.random.default_rng(19)
T, KINDS = 40, 6


def events(n, level=1.0):
    kind = rng.integers(0, KINDS, n)
    x = 0.5 * rng.standard_normal((n, T, 3))
    t = np.arange(T)
    for i, k in enumerate(kind):
        at, speed = rng.integers(6, 22), 0.35 + 0.18 * (k % 3)
        pulse = np.sin(speed * np.maximum(t - at, 0)) * np.exp(-np.maximum(t - at, 0) / 12.0)
        a, b = (0, 1) if k < 3 else (1, 0)
        x[i, :, a] += 1.6 * pulse * level
        x[i, :, b] += 1.6 * np.roll(pulse, 4)
        x[i, :, 2] += rng.uniform(-1, 1)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(kind)


class Backbone(nn.Module):
    def __init__(self, hid=48):
        super().__init__()
        self.mix = nn.Linear(3, 24)
        self.gru = nn.GRU(24, hid, batch_first=True)
        self.norm = nn.LayerNorm(hid)

    def forward(self, x):
        out, _ = self.gru(torch.tanh(self.mix(x)))
        return self.norm(out[:, -1])


class EventNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = Backbone()
        self.head = nn.Linear(48, KINDS)

    def forward(self, x):
        return self.head(self.backbone(x))


def accuracy(net, x, y):
    with torch.no_grad():
        return (net(x).argmax(1) == y).float().mean().item()


def fit(net, x, y, first, last, lr, unfreeze):
    params = [p for p in net.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(params, lr=lr, weight_decay=1e-3)
    for step in range(first, last):
        if step in unfreeze:
            for p in unfreeze[step].parameters():
                p.requires_grad_(True)
            opt.add_param_group({"params": list(unfreeze[step].parameters()), "lr": lr / 3})
            print("step", step, "one more part is trained")
        pick = torch.randint(0, len(x), (48,))
        loss = nn.functional.cross_entropy(net(x[pick]), y[pick])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 25 == 0:
            print("step", step, "loss", round(loss.item(), 4))


x_old, y_old = events(3000)
x_new, y_new = events(800, level=0.6)
x_val, y_val = events(500, level=0.6)
net = EventNet()
fit(net, x_old, y_old, 0, 250, 4e-3, {})
net.head = nn.Linear(48, KINDS)
for p in net.backbone.parameters():
    p.requires_grad = False
fit(net, x_new, y_new, 250, 450, 3e-3, {340: net.backbone.norm, 380: net.backbone.gru})
print("validation accuracy", accuracy(net, x_val, y_val))
