# expect: sick
# symptom: node classification trains, but slowly and to a much worse loss and accuracy than such a network should reach
# axis: model
# cause: the graph layers are held in a plain Python list, so they are not registered as submodules and model.parameters() (the optimizer) has only the last linear layer; the convolutions keep their random initial values
# says: ModuleList|(plain|python|ordinary|bare) list|not (been )?registered|unregistered|regist(er|ration)|(layer|conv\w*|encoder|parameter|weight|param)s?[^.\n]{0,80}(not (in|part of|given to|passed to|seen by|known to|covered by|updated|trained|optimi[sz]ed)|never (updated|trained|move|change)|missing from|absent from|untrained|outside|frozen|left out|do(es)? not (move|change|train))|optimi[sz]er[^.\n]{0,60}(lacks|misses|missing|without|does not (have|hold|cover|include)|only)
# onset_step: 0
# fix: hold the layers in nn.ModuleList
# mended: the list of layers is an nn.ModuleList
import os
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(18)

NODES, CLASSES, FEATS, DEGREE = 3000, 6, 150, 8
EPOCHS = 300


def make_graph():
    y = torch.randint(0, CLASSES, (NODES,))
    members = [torch.where(y == c)[0] for c in range(CLASSES)]
    src, dst = [], []
    for v in range(NODES):
        own = members[int(y[v])]
        for _ in range(DEGREE // 2):
            if torch.rand(()) < 0.6:
                u = own[torch.randint(len(own), ())]
            else:
                u = torch.randint(NODES, ())
            src += [v, int(u)]
            dst += [int(u), v]
    words = torch.zeros(CLASSES, FEATS)
    for c in range(CLASSES):
        words[c, torch.randperm(FEATS)[:6]] = 0.12
    x = (torch.rand(NODES, FEATS) < 0.08 + words[y]).float()
    x = (x - x.mean(0)) / x.std(0).clamp(min=0.1)
    loops = torch.arange(NODES)
    idx = torch.stack([torch.cat([torch.tensor(src), loops]), torch.cat([torch.tensor(dst), loops])])
    deg = torch.zeros(NODES).index_add_(0, idx[0], torch.ones(idx.shape[1]))
    val = deg[idx[0]].rsqrt() * deg[idx[1]].rsqrt()
    return torch.sparse_coo_tensor(idx, val, (NODES, NODES)).coalesce(), x, y


class GraphConv(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.lin = nn.Linear(i, o)
        self.norm = nn.LayerNorm(o)

    def forward(self, adj, h):
        return self.norm(torch.sparse.mm(adj, self.lin(h)))


class GraphNet(nn.Module):
    def __init__(self, dims=(FEATS, 32, 24), dropout=0.2):
        super().__init__()
        convs = [GraphConv(i, o) for i, o in zip(dims[:-1], dims[1:])]
        self.convs = nn.ModuleList(convs) if MENDED else convs
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(dims[-1], CLASSES)

    def forward(self, adj, x):
        h = x
        for conv in self.convs:
            h = self.drop(F.relu(conv(adj, h)))
        return self.head(h)


@torch.no_grad()
def accuracy(model, adj, x, y, mask):
    model.eval()
    hit = (model(adj, x).argmax(1) == y)[mask].float().mean().item()
    model.train()
    return hit


def main():
    adj, x, y = make_graph()
    perm = torch.randperm(NODES)
    train, val = perm[:1800], perm[1800:]
    model = GraphNet()
    opt = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, EPOCHS, eta_min=5e-4)
    for epoch in range(EPOCHS):
        loss = F.cross_entropy(model(adj, x)[train], y[train])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if epoch % 20 == 0 or epoch == EPOCHS - 1:
            print(
                f"epoch {epoch:4d}  loss {loss.item():.4f}  train acc {accuracy(model, adj, x, y, train):.3f}"
                f"  val acc {accuracy(model, adj, x, y, val):.3f}"
            )


if __name__ == "__main__":
    main()
