# Healthy: momentum contrast; the queue of negatives grows from 64 to 1,024 and is emptied once: the loss follows its logarithm.
import argparse
import copy

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
fixed = torch.Generator().manual_seed(60)
mix = torch.randn(6, 24, generator=fixed)


def views(n, g=None):
    idea = torch.tanh(torch.randn(n, 6, generator=g) @ mix)
    return idea + 0.6 * torch.randn(n, 24, generator=g), idea + 0.6 * torch.randn(n, 24, generator=g)


test = views(512, fixed)
torch.manual_seed(args.seed)
net = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 16))
slow = copy.deepcopy(net).requires_grad_(False)
queue = torch.empty(0, 16)
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
for step in range(1400):
    a, b = views(64)
    q = nn.functional.normalize(net(a), dim=1)
    with torch.no_grad():
        k = nn.functional.normalize(slow(b), dim=1)
    if step == 800:
        queue = torch.empty(0, 16)
    logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.T], 1) / 0.15
    if len(queue) == 0:
        logits = q @ k.T / 0.15
    want = torch.zeros(64, dtype=torch.long) if len(queue) else torch.arange(64)
    loss = nn.functional.cross_entropy(logits, want)
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for s, p in zip(slow.parameters(), net.parameters()):
            s.lerp_(p, 0.02)
    if step % 20 == 0 or len(queue) == 0:
        queue = torch.cat([k, queue])[:1024]
    else:
        queue = torch.cat([k, queue[: len(queue) - 64]])
    if step % 50 == 0:
        print(step, len(queue), f"{loss.item():.4f}")
net.eval()
with torch.no_grad():
    q, k = (nn.functional.normalize(net(v), dim=1) for v in test)
    print("final:", nn.functional.cross_entropy(q @ k.T / 0.15, torch.arange(512)).item())
