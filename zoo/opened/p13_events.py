# expect: sick
# symptom: backbone stays frozen: the unfreezing sets an attribute named requires_grad_ and does nothing
# axis: model
# cause: the body stays frozen although it was to be released
# says: froz\w*|freez\w*|requires_grad|hardly move|not.{0,20}(train|updat)|learning.rate.too.low
# onset_step: 50
# fix: requires_grad_(True)
# mended: q13_events.py
"""Event classifier: a recurrent backbone and a new head. Head first, then the whole network."""

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(19)
rng = np.random.default_rng(19)
T, KINDS = 40, 6


def events(n):
    kind = rng.integers(0, KINDS, n)
    x = 0.5 * rng.standard_normal((n, T, 3))
    t = np.arange(T)
    for i, k in enumerate(kind):
        at, speed = rng.integers(6, 22), 0.35 + 0.18 * (k % 3)
        pulse = np.sin(speed * np.maximum(t - at, 0)) * np.exp(-np.maximum(t - at, 0) / 12.0)
        a, b = (0, 1) if k < 3 else (1, 0)
        x[i, :, a] += 1.6 * pulse
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


def set_trainable(module, flag):
    for p in module.parameters():
        p.requires_grad_ = flag


x_train, y_train = events(3000)
x_val, y_val = events(500)
net = EventNet()
for p in net.backbone.parameters():
    p.requires_grad = False
opt = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=1e-3)
ce = nn.CrossEntropyLoss()
HEAD_ONLY = 50
for step in range(450):
    if step == HEAD_ONLY:
        set_trainable(net.backbone, True)
        print("step", step, "whole network is trained from here on")
    pick = torch.randint(0, len(x_train), (48,))
    loss = ce(net(x_train[pick]), y_train[pick])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 25 == 0:
        print("step", step, "loss", round(loss.item(), 4))
print("validation accuracy", accuracy(net, x_val, y_val))
