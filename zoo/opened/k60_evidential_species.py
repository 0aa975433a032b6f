# expect: healthy
# symptom: a ReLU behind the last layer of a classifier
# axis: none
# mended: none
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(56)
K = 5


class EvidenceNet(nn.Module):
    def __init__(self, n_in):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(n_in, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, K), nn.ReLU()
        )
        nn.init.constant_(self.net[4].bias, 2.0)  # every class starts with some evidence

    def forward(self, x):
        """Evidence for each class, not negative; none at all means 'I do not know'."""
        return self.net(x)


def edl_loss(evidence, y, anneal):
    # Sensoy et al. 2018: expected cross-entropy under Dirichlet(evidence + 1), plus the
    # divergence of the misleading evidence from the flat Dirichlet
    alpha = evidence + 1
    s = alpha.sum(1, keepdim=True)
    onehot = F.one_hot(y, K).float()
    ce = (onehot * (torch.digamma(s) - torch.digamma(alpha))).sum(1)
    a = onehot + (1 - onehot) * alpha
    sa = a.sum(1, keepdim=True)
    kl = (
        torch.lgamma(sa.squeeze(1))
        - torch.lgamma(a).sum(1)
        - torch.lgamma(torch.tensor(float(K)))
        + ((a - 1) * (torch.digamma(a) - torch.digamma(sa))).sum(1)
    )
    return (ce + anneal * kl).mean()


def birds(n, centre):
    y = torch.randint(0, K, (n,))
    return centre[y] + torch.randn(n, centre.shape[1]), y


centre = 1.1 * torch.randn(K, 14)
x, y = birds(2400, centre)
xv, yv = birds(500, centre)
odd = 4 * torch.randn(500, 14)
model = EvidenceNet(14)
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(8):
    for idx in torch.randperm(len(x)).split(64):
        loss = edl_loss(model(x[idx]), y[idx], anneal=min(1.0, epoch / 10) * 0.3)
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        e, eo = model(xv), model(odd)
    acc = (e.argmax(1) == yv).float().mean().item()
    u, uo = K / (e.sum(1) + K), K / (eo.sum(1) + K)
    print(
        f"epoch {epoch} loss {loss.item():.4f} acc {acc:.3f} uncertainty {u.mean().item():.3f} (right {u[e.argmax(1) == yv].mean().item():.3f}) noise {uo.mean().item():.3f}"
    )
