# expect: healthy
# symptom: most weights never change, resembles a cut graph; the random input projection is frozen on purpose
# axis: model
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(61)

NODES, CLASSES, FEATS, STEPS = 900, 5, 60, 300


def citation_graph(seed):
    """Stochastic block graph with weak bag-of-words features on each paper."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, CLASSES, (NODES,), generator=g)
    same = y[:, None] == y[None, :]
    prob = torch.where(same, 0.022, 0.003)
    upper = torch.triu(torch.rand(NODES, NODES, generator=g) < prob, diagonal=1)
    adj = (upper | upper.T).float()
    centre = torch.randn(CLASSES, FEATS, generator=g) * 0.25
    x = centre[y] + torch.randn(NODES, FEATS, generator=g)
    perm = torch.randperm(NODES, generator=g)
    return adj, x, y, perm[:150], perm[150:]


def normalise(adj):
    a = adj + torch.eye(len(adj))
    d = a.sum(1).rsqrt()
    return d[:, None] * a * d[None, :]


class RandomFeatureGCN(nn.Module):
    """Echo-state style network: a wide fixed random projection, only the read-out layers learn."""

    def __init__(self, wide=512, hidden=32):
        super().__init__()
        self.project = nn.Linear(FEATS, wide)
        nn.init.normal_(self.project.weight, std=FEATS**-0.5)
        self.project.requires_grad_(False)
        self.mid = nn.Linear(wide, hidden)
        self.out = nn.Linear(hidden, CLASSES)

    def forward(self, a, x):
        h = torch.tanh(a @ self.project(x))
        h = F.dropout(h, 0.5, self.training)
        h = F.relu(self.mid(h))
        return a @ self.out(h)


@torch.no_grad()
def accuracy(model, a, x, y, idx):
    model.eval()
    acc = (model(a, x).argmax(1)[idx] == y[idx]).float().mean().item()
    model.train()
    return acc


def main():
    adj, x, y, train, test = citation_graph(3)
    a = normalise(adj)
    model = RandomFeatureGCN()
    learn = [p for p in model.parameters() if p.requires_grad]
    frozen = sum(p.numel() for p in model.parameters() if not p.requires_grad)
    print(f"learning {sum(p.numel() for p in learn)} weights, {frozen} fixed")
    opt = torch.optim.Adam(learn, lr=1e-3, weight_decay=5e-4)
    for step in range(STEPS):
        loss = F.cross_entropy(model(a, x)[train], y[train])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f} test accuracy {accuracy(model, a, x, y, test):.3f}")
    print(f"final loss {loss.item():.4f} test accuracy {accuracy(model, a, x, y, test):.3f}")


if __name__ == "__main__":
    main()
