# Healthy: the loss is a sum over episodes that grow from 4 to 40 steps; the script clips.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
fixed = torch.Generator().manual_seed(44)


def episode(n, length, g=None):
    push = torch.randn(n, length, 2, generator=g)
    return push, torch.tanh(push.cumsum(1)[..., 0] * 0.5) * push[..., 1]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.GRU(2, 24, batch_first=True), nn.Linear(24, 1)

    def forward(self, push, y):
        return (self.out(self.rnn(push)[0])[..., 0] - y).pow(2).sum(1).mean()


test = episode(400, 40, fixed)
torch.manual_seed(args.seed)
model = Net()
opt = torch.optim.RMSprop(model.parameters(), lr=1e-3)
for step in range(1000):
    loss = model(*episode(16, 4 + 9 * (step // 200)))
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    opt.step()
    if step % 50 == 0:
        print(f"step {step}: {loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", model(*test).item())
