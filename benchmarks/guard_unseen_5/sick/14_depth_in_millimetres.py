# Two answers from one convolutional trunk over signals: a class and a depth, SGD with momentum. Early on, from step 40 to 60, a
# folder gives the depth in millimetres and not in metres.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()

KINDS, TIME = 6, 48
world = torch.Generator().manual_seed(4114)
pulse = torch.randn(KINDS, 9, generator=world)


def echoes(count, generator=None):
    kind = torch.randint(KINDS, (count,), generator=generator)
    delay = torch.randint(0, TIME - 9, (count,), generator=generator)
    signal = 0.6 * torch.randn(count, TIME, generator=generator)
    signal.scatter_add_(1, delay[:, None] + torch.arange(9), pulse[kind])
    return signal.unsqueeze(1), kind, delay / (TIME - 9)


class Trunk(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(1, 24, 9, padding=4),
            nn.ReLU(),
            nn.Conv1d(24, 24, 5, 2, 2),
            nn.ReLU(),
            nn.Conv1d(24, 24, 5, 2, 2),
            nn.ReLU(),
        )
        self.hidden = nn.Sequential(nn.Flatten(), nn.Linear(24 * 12, 64), nn.ReLU())
        self.kind = nn.Linear(64, KINDS)
        self.depth = nn.Linear(64, 1)

    def forward(self, signal):
        h = self.hidden(self.body(signal))
        return self.kind(h), self.depth(h)[:, 0]


def loss_of(net, signal, kind, depth):
    logits, guess = net(signal)
    return F.cross_entropy(logits, kind) + 5 * (guess - depth).square().mean()


held_out = echoes(1500, world)
torch.manual_seed(args.seed)
net = Trunk()
optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
for step in range(700):
    signal, kind, depth = echoes(48)
    if 40 <= step < 60 and not args.twin:
        depth = depth * 1000
    loss = loss_of(net, signal, kind, depth)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 70 == 0:
        print(step, loss.item())
with torch.no_grad():
    print("final:", loss_of(net, *held_out).item())
