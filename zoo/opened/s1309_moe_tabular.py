# expect: sick
# symptom: it trains and the loss falls, but it levels off far above what the model should reach; adding experts does not help
# axis: model
# cause: the experts are kept in a plain Python list, so they are not registered: model.parameters() lacks them and the optimizer never updates them
# says: (python|plain|ordinary|regular|bare|normal|raw).{0,10}list|modulelist|(expert|sub-?module|layer|param\w*)s?.{0,120}(not|never|n't|un-?|missing|absent|lack\w*|outside|excluded).{0,30}(regist\w*|in (the )?(optimi[sz]er|model\.parameters|parameters)|updat\w*|train\w*|optimi[sz]\w*|learn\w*|move)|(optimi[sz]er|model\.parameters\(?\)?|parameters\(\)).{0,60}(lacks?|missing|miss|not (include|contain|see|get|have)|does ?n.t|without|never|omits?|excludes?).{0,60}|experts?.{0,40}(frozen|untrained|random init\w*|unregistered|stay)
# onset_step: 0
# fix: nn.ModuleList for the experts
# mended: the experts are held in nn.ModuleList
import os
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(13)
rng = np.random.default_rng(13)

N_NUM, N_SEG, CLASSES = 10, 8, 5
SEG_W = rng.normal(size=(N_SEG, N_NUM, 16))
SEG_V = rng.normal(size=(N_SEG, 16, CLASSES))


def make_customers(n):
    """Each customer segment has its own non-linear rule from ten numbers to one of five offers."""
    seg = rng.integers(0, N_SEG, size=n)
    x = rng.normal(size=(n, N_NUM))
    h = np.tanh(np.einsum("nf,nfh->nh", x, SEG_W[seg]) * 0.5)
    score = np.einsum("nh,nhc->nc", h, SEG_V[seg])
    y = (score + 0.1 * rng.normal(size=score.shape)).argmax(-1)
    return torch.tensor(x, dtype=torch.float32), torch.from_numpy(seg), torch.from_numpy(y)


class Expert(nn.Module):
    def __init__(self, d, hidden):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d, hidden), nn.GELU(), nn.Linear(hidden, d))

    def forward(self, x):
        return self.net(x)


class MoELayer(nn.Module):
    def __init__(self, d, n_experts=8, k=2):
        super().__init__()
        self.k, self.n = k, n_experts
        self.norm = nn.LayerNorm(d)
        self.router = nn.Linear(d, n_experts, bias=False)
        experts = [Expert(d, 2 * d) for _ in range(n_experts)]
        self.experts = nn.ModuleList(experts) if MENDED else experts

    def forward(self, x):
        h = self.norm(x)
        probs = self.router(h).softmax(-1)
        top_p, top_i = probs.topk(self.k, dim=-1)
        top_p = top_p / top_p.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for e in range(self.n):
            row, slot = (top_i == e).nonzero(as_tuple=True)
            if len(row):
                out = out.index_add(0, row, top_p[row, slot, None] * self.experts[e](h[row]))
        load = F.one_hot(top_i, self.n).float().sum(1).mean(0) / self.k
        balance = self.n * (load * probs.mean(0)).sum()
        return x + out, balance


class MoEClassifier(nn.Module):
    def __init__(self, d=32, layers=2):
        super().__init__()
        self.inp = nn.Linear(N_NUM, d)
        self.seg = nn.Embedding(N_SEG, d)
        self.layers = nn.ModuleList(MoELayer(d) for _ in range(layers))
        self.head = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, CLASSES))

    def forward(self, x, seg):
        h = self.inp(x) + self.seg(seg)
        aux = 0.0
        for layer in self.layers:
            h, b = layer(h)
            aux = aux + b
        return self.head(h), aux


x, seg, y = make_customers(10000)
xv, sv, yv = make_customers(1500)
model = MoEClassifier()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)

BS, step = 128, 0
for epoch in range(6):
    order = torch.randperm(len(y))
    for i in range(0, len(order) - BS + 1, BS):
        idx = order[i : i + BS]
        logits, aux = model(x[idx], seg[idx])
        ce = F.cross_entropy(logits, y[idx])
        loss = ce + 0.01 * aux
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 40 == 0:
            print(f"step {step:4d} loss {loss.item():.4f} ce {ce.item():.4f}")
        step += 1
    with torch.no_grad():
        acc = (model(xv, sv)[0].argmax(-1) == yv).float().mean().item()
    print(f"epoch {epoch} val acc {acc:.3f}")
