# EXPECT: sick
# FAULT: batch norm momentum 0, running statistics never move
# ONSET: 1
# SAYS: running|batchnorm|batch norm|momentum|BatchNorm
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(52)


def mlp(sizes, bn_momentum):
    mods = []
    for a, b in zip(sizes[:-2], sizes[1:-1]):
        mods += [nn.Linear(a, b), nn.BatchNorm1d(b, momentum=bn_momentum), nn.ReLU()]
    mods.append(nn.Linear(sizes[-2], sizes[-1]))
    return nn.Sequential(*mods)


net = mlp([18, 64, 64, 5], bn_momentum=0.0)
ctr = torch.randn(5, 18) * 3


def sample(n):
    y = torch.randint(0, 5, (n,))
    return 6 + 4 * (ctr[y] + 3 * torch.randn(n, 18)), y


optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
xv, yv = sample(400)
for step in range(1, 101):
    net.train()
    x, y = sample(64)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        net.eval()
        with torch.no_grad():
            out = net(xv)
        print(
            f"step {step} train {loss.item():.3f} | val {nn.functional.cross_entropy(out, yv).item():.3f} acc {(out.argmax(1) == yv).float().mean():.2f}"
        )
