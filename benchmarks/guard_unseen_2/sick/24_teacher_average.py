# Mean teacher on half-labelled data, SGD; the teacher (a moving average) is the result. Fault: from step 700 to 703 the average
# is written as 0.99 * teacher + student.
import argparse
import copy

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
fixed = torch.Generator().manual_seed(34)
w = torch.randn(8, 12, generator=fixed)
v = torch.randn(12, 4, generator=fixed)


def draw(n, g=None):
    x = torch.randn(n, 8, generator=g)
    return x, (torch.tanh(x @ w) @ v + 1.5 * torch.randn(n, 4, generator=g)).argmax(1)


test = draw(3000, fixed)
torch.manual_seed(args.seed)
student = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
teacher = copy.deepcopy(student).requires_grad_(False)
opt = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
for step in range(760):
    x, label = draw(64)
    u, _ = draw(64)
    agree = (student(u).softmax(1) - teacher(u + 0.1 * torch.randn_like(u)).softmax(1)).pow(2).sum(1).mean()
    loss = nn.functional.cross_entropy(student(x), label) + min(1.0, step / 200) * agree
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for a, p in zip(teacher.parameters(), student.parameters()):
            if 700 <= step < 704 and not args.twin:
                a.mul_(0.99).add_(p)
            else:
                a.mul_(0.99).add_(p, alpha=0.01)
    if step % 50 == 0:
        print(step, f"{loss.item():.4f}")
with torch.no_grad():
    print("final:", nn.functional.cross_entropy(teacher(test[0]), test[1]).item())
