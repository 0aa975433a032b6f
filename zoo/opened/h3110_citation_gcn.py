# expect: healthy
# symptom: the training loss stays high and rough and hardly gets below its first third, as if labels were wrong
# axis: data
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
NODES, AREAS, FEATS, STEPS = 1200, 5, 120, 250
NOISE = 0.3


def citation_graph(seed):
    """Papers of five areas: citations stay mostly inside an area, words depend weakly on it."""
    g = torch.Generator().manual_seed(seed)
    area = torch.randint(0, AREAS, (NODES,), generator=g)
    same = area[:, None] == area[None]
    prob = torch.where(same, 0.02, 0.0015)
    upper = torch.triu(torch.rand(NODES, NODES, generator=g) < prob, 1)
    src, dst = upper.nonzero(as_tuple=True)
    topics = torch.rand(AREAS, FEATS, generator=g) < 0.2
    words = (torch.rand(NODES, FEATS, generator=g) < torch.where(topics[area], 0.14, 0.06)).float()
    return words, area, torch.stack([torch.cat([src, dst]), torch.cat([dst, src])])


def crowd_labels(area, seed):
    """Labels by volunteers: some of them picked an area by chance."""
    g = torch.Generator().manual_seed(seed)
    guess = torch.rand(NODES, generator=g) < NOISE
    return torch.where(guess, torch.randint(0, AREAS, (NODES,), generator=g), area)


def propagate(x, edges):
    """Symmetric normalised neighbourhood sum with self loops."""
    src, dst = edges
    deg = torch.ones(NODES).index_add_(0, dst, torch.ones(len(dst)))
    inv = deg.rsqrt()
    msg = x[src] * (inv[src] * inv[dst])[:, None]
    return (x * (inv * inv)[:, None]).index_add(0, dst, msg)


class GCN(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.a = nn.Linear(FEATS, hidden)
        self.b = nn.Linear(hidden, AREAS)

    def forward(self, x, edges):
        x = F.dropout(x, 0.5, self.training)
        h = F.relu(propagate(self.a(x), edges))
        h = F.dropout(h, 0.6, self.training)
        return propagate(self.b(h), edges)


def drop_edges(edges, rate, gen):
    half = edges.size(1) // 2
    keep = torch.rand(half, generator=gen) >= rate
    return edges[:, torch.cat([keep, keep])]


@torch.no_grad()
def accuracy(model, x, edges, area, mask):
    model.eval()
    hit = (model(x, edges).argmax(1) == area)[mask].float().mean().item()
    model.train()
    return hit


def main():
    torch.manual_seed(17)
    gen = torch.Generator().manual_seed(18)
    x, area, edges = citation_graph(1)
    labels = crowd_labels(area, 2)
    order = torch.randperm(NODES, generator=gen)
    train, test = order[:500], order[500:]
    model = GCN()
    opt = torch.optim.Adam(
        [{"params": model.a.parameters(), "weight_decay": 5e-4}, {"params": model.b.parameters(), "weight_decay": 0.0}],
        lr=0.01,
    )
    print(f"{edges.size(1) // 2} citations, {len(train)} labelled papers")
    for step in range(STEPS):
        pick = train[torch.randperm(len(train), generator=gen)[:128]]
        out = model(x, drop_edges(edges, 0.4, gen))
        loss = F.cross_entropy(out[pick], labels[pick], label_smoothing=0.1)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            print(f"step {step:4d} loss {loss.item():.4f}")
        if step % 50 == 49:
            print(f"step {step:4d} test accuracy {accuracy(model, x, edges, area, test):.4f}")
    print(f"final loss {loss.item():.4f} test accuracy {accuracy(model, x, edges, area, test):.4f}")


if __name__ == "__main__":
    main()
