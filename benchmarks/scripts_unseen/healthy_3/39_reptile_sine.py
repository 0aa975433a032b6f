# expect: healthy
# fault: weights reset again and again
# note: Reptile: each task trains a copy for 5 steps, then the meta weights move a little toward it; the inner loss starts high at each task.
import copy
import math
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(66)


def task():
    amp, ph = torch.rand(()) * 2 + 1, torch.rand(()) * math.pi

    def data(n):
        x = torch.rand(n, 1) * 10 - 5
        return x, amp * torch.sin(x + ph)

    return data


meta = nn.Sequential(nn.Linear(1, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 1))
after = []
held_out = [task() for _ in range(20)]
held_sets = [(t(24), t(64)) for t in held_out]


def held_error():
    total = 0.0
    for (x, y), (xt, yt) in held_sets:
        net = copy.deepcopy(meta)
        for _ in range(5):
            grads = torch.autograd.grad((net(x) - y).pow(2).mean(), list(net.parameters()))
            with torch.no_grad():
                for p, g in zip(net.parameters(), grads):
                    p.sub_(0.02 * g)
        total += (net(xt) - yt).pow(2).mean().item() / len(held_sets)
    return total


print("held-out before", held_error())
for outer in range(60):
    data = task()
    fast = copy.deepcopy(meta)
    opt = torch.optim.SGD(fast.parameters(), lr=0.02)
    x, y = data(32)
    for _ in range(5):
        loss = (fast(x) - y).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        for m, f in zip(meta.parameters(), fast.parameters()):
            m.lerp_(f, 0.8 * (1 - outer / 80))
        xt, yt = data(64)
        after.append((fast(xt) - yt).pow(2).mean().item())
    if outer % 5 == 4:
        print(outer, "after adaption", sum(after[-5:]) / 5)
print("held-out after", held_error())
