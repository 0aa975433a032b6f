# expect: sick
# symptom: the loss falls slowly and levels off far above what the graph allows; test accuracy stays poor
# axis: model
# cause: the per-relation layers are kept in a plain Python dict, so they are not registered and never trained
# says: (plain|python).{0,20}(dict|list)|Module(Dict|List)|regist|(not|never|absent).{0,30}optimi[sz]er
# onset_step: 0
# fix: keep the per-relation layers in an nn.ModuleDict
# mended: the script applies that change if the environment has MENDED=1
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(13)
MENDED = os.environ.get("MENDED") == "1"

RELATIONS = ("cites", "coauthor", "venue", "reviewer", "funder", "lab", "keyword", "reader")
N_NODES, N_TOPICS, FEAT = 1500, 6, 16


def build_graph(seed=0):
    """A paper's topic is told by the papers it cites; the other relations are mostly noise."""
    g = torch.Generator().manual_seed(seed)
    topic = torch.randint(N_TOPICS, (N_NODES,), generator=g)
    hint = torch.randint(N_TOPICS, (N_NODES,), generator=g)
    proto = torch.randn(N_TOPICS, FEAT, generator=g)
    feats = proto[hint] + 0.7 * torch.randn(N_NODES, FEAT, generator=g)
    adj = {}
    for name in RELATIONS:
        a = torch.zeros(N_NODES, N_NODES)
        for i in range(N_NODES):
            if name == "cites":
                pool = torch.nonzero(hint == (topic[i] + 2) % N_TOPICS).squeeze(1)
                picks = pool[torch.randint(len(pool), (1,), generator=g)]
            else:
                picks = torch.randint(N_NODES, (1,), generator=g)
            a[i, picks] = 1.0
        adj[name] = (a / a.sum(1, keepdim=True)).to_sparse()
    order = torch.randperm(N_NODES, generator=g)
    return feats, topic, adj, order[:1000], order[1000:]


class RelationalConv(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.self_loop = nn.Linear(dim, dim)
        layers = {name: nn.Linear(dim, dim, bias=False) for name in RELATIONS}
        self.by_relation = nn.ModuleDict(layers) if MENDED else layers
        self.norm = nn.LayerNorm(dim)

    def forward(self, h, adj):
        out = self.self_loop(h)
        for name, layer in self.by_relation.items():
            out = out + torch.sparse.mm(adj[name], layer(h))
        return F.relu(self.norm(out))


class PaperClassifier(nn.Module):
    def __init__(self, hidden=12, depth=1):
        super().__init__()
        self.embed = nn.Linear(FEAT, hidden)
        self.convs = nn.ModuleList(RelationalConv(hidden) for _ in range(depth))
        self.classify = nn.Linear(hidden, N_TOPICS)

    def forward(self, x, adj):
        h = self.embed(x)
        for conv in self.convs:
            h = conv(h, adj)
        return self.classify(h)


def accuracy(logits, y, idx):
    return (logits[idx].argmax(-1) == y[idx]).float().mean().item()


def main():
    x, y, adj, train_idx, test_idx = build_graph()
    model = PaperClassifier()
    opt = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=5e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=250, eta_min=1e-4)
    for epoch in range(250):
        model.train()
        logits = model(x, adj)
        loss = F.cross_entropy(logits[train_idx], y[train_idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if epoch % 25 == 0:
            print(f"epoch {epoch:3d} loss {loss.item():.4f} train acc {accuracy(logits, y, train_idx):.3f}")
    model.eval()
    with torch.no_grad():
        logits = model(x, adj)
        final = F.cross_entropy(logits[train_idx], y[train_idx]).item()
    print(
        f"final loss {final:.4f} train acc {accuracy(logits, y, train_idx):.3f} "
        f"test acc {accuracy(logits, y, test_idx):.3f}"
    )


if __name__ == "__main__":
    main()
