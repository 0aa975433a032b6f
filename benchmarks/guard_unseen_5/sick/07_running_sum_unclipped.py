# A ReLU recurrence with an identity start keeps a running sum of marked numbers. The first stage reads short series and clips the
# gradient; the second, written later, reads longer ones and forgets to clip.
import argparse

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()
world = torch.Generator().manual_seed(4107)


def series(count, length, generator=None):
    value = torch.rand(count, length, generator=generator)
    mark = (torch.rand(count, length, generator=generator) < 6 / length).float()
    return torch.stack([value, mark], -1), (value * mark).sum(1, keepdim=True)


class Adder(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.read = nn.Linear(2, width)
        self.hidden = nn.Parameter(torch.eye(width))
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        state = torch.zeros(len(x), self.hidden.shape[0])
        for step in self.read(x).unbind(1):
            state = torch.relu(step + state @ self.hidden)
        return self.out(state)


long_x, long_y = series(1000, 60, world)
torch.manual_seed(args.seed)
net = Adder()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
done = 0
for stage, (length, steps) in enumerate([(20, 400), (60, 350)]):
    for _ in range(steps):
        x, y = series(32, length)
        loss = (net(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if stage == 0 or args.twin:
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        if done % 50 == 0:
            print(f"stage {stage} step {done} loss {loss.item():.4f}")
        done += 1
with torch.no_grad():
    print("final:", (net(long_x) - long_y).square().mean().item())
