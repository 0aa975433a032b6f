# expect: healthy
# fault: a network in no optimizer (the momentum target) and stop-gradient
# note: BYOL: the target is an EMA of the online net and is never optimised; it uses deepcopy and requires_grad_(False) on purpose.
import copy
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(4)


def mlp(i, h, o):
    return nn.Sequential(nn.Linear(i, h), nn.BatchNorm1d(h), nn.ReLU(), nn.Linear(h, o))


protos = torch.randn(6, 32)


def views(n):
    y = torch.randint(0, 6, (n,))
    base = protos[y] + 0.3 * torch.randn(n, 32)
    aug = lambda z: (z + 0.3 * torch.randn_like(z)) * (torch.rand_like(z) > 0.2)
    return aug(base), aug(base), y


online = nn.Sequential(mlp(32, 48, 24), mlp(24, 32, 16))
predictor = mlp(16, 32, 16)
target = copy.deepcopy(online)
for p in target.parameters():
    p.requires_grad_(False)
opt = torch.optim.Adam([*online.parameters(), *predictor.parameters()], lr=2e-3)
for step in range(180):
    a, b, _ = views(64)
    with torch.no_grad():
        ta, tb = target(a), target(b)
    loss = (
        4
        - 2 * F.cosine_similarity(predictor(online(a)), tb).mean()
        - 2 * F.cosine_similarity(predictor(online(b)), ta).mean()
    )
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for t, o in zip(target.parameters(), online.parameters()):
            t.lerp_(o, 0.02)
    if step % 20 == 0:
        print(step, f"{loss.item():.4f}")
a, b, y = views(300)
with torch.no_grad():
    z = F.normalize(online[0](a), dim=1)
sim = z @ z.T - 2 * torch.eye(300)
print("knn acc", (y[sim.argmax(1)] == y).float().mean().item(), "std", z.std(0).mean().item())
