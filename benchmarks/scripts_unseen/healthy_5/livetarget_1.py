# expect: healthy
# fault: none, this is VICReg: both branches rightly carry gradient, since the variance and covariance terms keep the embeddings from collapsing
# onset_step: none
# says: (?!)
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(61)

DIM, OUT, GROUPS = 36, 48, 8
protos = torch.randn(GROUPS, DIM)
labels = torch.randint(0, GROUPS, (1800,))
samples = protos[labels] + 0.6 * torch.randn(1800, DIM)


def view_of(x):
    mask = torch.rand_like(x) > 0.2
    return x * mask + 0.1 * torch.randn_like(x)


online = nn.Sequential(nn.Linear(DIM, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 64))
project = nn.Sequential(nn.Linear(64, 96), nn.BatchNorm1d(96), nn.ReLU(), nn.Linear(96, OUT))


def off_diagonal(m):
    return m - torch.diag(torch.diagonal(m))


def spread_terms(z):
    std = torch.sqrt(z.var(dim=0) + 1e-4)
    hinge = F.relu(1 - std).mean()
    zc = z - z.mean(dim=0)
    cov = zc.T @ zc / (len(z) - 1)
    return hinge, off_diagonal(cov).pow(2).sum() / OUT


params = list(online.parameters()) + list(project.parameters())
opt = torch.optim.Adam(params, lr=1e-3)

for step in range(1, 281):
    batch = samples[torch.randint(0, 1500, (128,))]
    pred = project(online(view_of(batch)))
    target = project(online(view_of(batch)))
    sim = F.mse_loss(pred, target)
    v1, c1 = spread_terms(pred)
    v2, c2 = spread_terms(target)
    loss = 25 * sim + 25 * 0.5 * (v1 + v2) + (c1 + c2)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 40 == 0:
        print(f"step {step} total {loss.item():.3f} sim {sim.item():.4f} std {pred.std(0).mean().item():.3f}")

online.eval()
with torch.no_grad():
    feats = F.normalize(online(samples), dim=1)
    centres = torch.stack([feats[:1500][labels[:1500] == k].mean(0) for k in range(GROUPS)])
    acc = ((feats[1500:] @ centres.T).argmax(1) == labels[1500:]).float().mean().item()
print("nearest-centre accuracy", round(acc, 3))
