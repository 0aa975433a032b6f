# Parity of three bits out of thirty: a long plateau at log 2, then the loss drops within some steps.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()


def bits(count, generator=None):
    x = torch.randint(2, (count, 30), generator=generator).float() * 2 - 1
    return x, (x[:, 3] * x[:, 11] * x[:, 24] > 0).float()


x_test, y_test = bits(2000, torch.Generator().manual_seed(4202))
torch.manual_seed(args.seed)
net = nn.Sequential(nn.Linear(30, 256), nn.ReLU(), nn.Linear(256, 1))
optimizer = torch.optim.AdamW(net.parameters(), lr=4e-3, weight_decay=0.02)
for step in range(1400):
    x, y = bits(256)
    loss = F.binary_cross_entropy_with_logits(net(x)[:, 0], y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step} loss {loss.item():.4f}")
with torch.no_grad():
    print("final:", F.binary_cross_entropy_with_logits(net(x_test)[:, 0], y_test).item())
