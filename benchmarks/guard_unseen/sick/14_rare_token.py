# Bag-of-words language classifier with an embedding table, SGD. Fault: step 420 gets documents of one repeated token.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
g = torch.Generator().manual_seed(91)
topic = torch.softmax(1.0 * torch.randn(4, 200, generator=g), -1)


def docs(n):
    y = torch.randint(0, 4, (n,), generator=g)
    return torch.multinomial(topic[y], 12, replacement=True, generator=g), y


x, y = docs(8000)
hx, hy = docs(2000)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.EmbeddingBag(201, 24, mode="sum")
        self.mlp = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 4))

    def forward(self, x):
        return self.mlp(self.emb(x))


torch.manual_seed(args.seed)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.03, momentum=0.9)
sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.997)
for step in range(560):
    i = torch.randint(0, 8000, (64,))
    xb = x[i]
    if step == 420 and not args.twin:
        xb = torch.full((64, 4000), 200)  # "<pad> <pad> <pad> ..."
    loss = nn.functional.cross_entropy(net(xb), y[i])
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 70 == 0:
        print("step", step, loss.item())
net.eval()
with torch.no_grad():
    print("final:", nn.functional.cross_entropy(net(hx), hy).item())
