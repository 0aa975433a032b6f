# expect: sick
# symptom: training loss stays near log(classes), validation accuracy stays near chance, gradients look normal
# axis: data
# cause: batches use relabelled local node ids but index the full feature table: features of the wrong nodes
# says: (local|relabel|renumber|global).{0,90}(id|ind(ex|ic)|feat|row|node)|n_id|feat.{0,50}(wrong|other) node
# onset_step: 0
# fix: gather the features of the batch by n_id before the model is called
# mended: the script applies that change if the environment has MENDED=1
"""Topic prediction on a citation-like graph with neighbour-sampled mini-batches."""

import os

import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(17)
GATHER = os.environ.get("MENDED") == "1"

NODES, CLASSES, FEATS, FANOUT, BATCH, STEPS = 2400, 5, 32, 6, 64, 300


def make_graph(seed=3):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, CLASSES, (NODES,), generator=g)
    x = 0.55 * torch.randn(CLASSES, FEATS, generator=g)[y] + torch.randn(NODES, FEATS, generator=g)
    by_class = [(y == c).nonzero().flatten() for c in range(CLASSES)]
    nbrs = []
    for v in range(NODES):
        same = by_class[int(y[v])]
        a = same[torch.randint(0, len(same), (8,), generator=g)]
        b = torch.randint(0, NODES, (3,), generator=g)
        nbrs.append(torch.cat([a, b]))
    return x, y, torch.stack(nbrs)


class NeighbourSampler:
    """Yields (n_id, src, dst): seeds come first in n_id, edges are numbered inside the batch."""

    def __init__(self, nbrs, seed):
        self.nbrs, self.g = nbrs, torch.Generator().manual_seed(seed)

    def sample(self, seeds):
        cols = torch.randint(0, self.nbrs.shape[1], (len(seeds), FANOUT), generator=self.g)
        picked = self.nbrs[seeds].gather(1, cols)
        index = {int(v): i for i, v in enumerate(seeds)}
        for v in picked.flatten().tolist():
            index.setdefault(v, len(index))
        n_id = torch.tensor(list(index))
        src = torch.tensor([index[v] for v in picked.flatten().tolist()])
        dst = torch.arange(len(seeds)).repeat_interleave(FANOUT)
        return n_id, src, dst


class Sage(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(FEATS, hidden), nn.ReLU(), nn.Linear(hidden, hidden))
        self.self_lin, self.nbr_lin = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, CLASSES)

    def forward(self, feats, src, dst, n_out):
        h = self.enc(feats)
        agg = h.new_zeros(n_out, h.shape[1]).index_add(0, dst, h[src])
        deg = torch.bincount(dst, minlength=n_out).clamp(min=1)
        z = F.relu(self.self_lin(h[:n_out]) + self.nbr_lin(agg / deg[:, None]))
        return self.out(F.dropout(z, 0.1, self.training))


@torch.no_grad()
def evaluate(model, x, y, nbrs, mask):
    model.eval()
    src, dst = nbrs.flatten(), torch.arange(NODES).repeat_interleave(nbrs.shape[1])
    out = model(x, src, dst, NODES)[mask]
    model.train()
    return F.cross_entropy(out, y[mask]).item(), (out.argmax(1) == y[mask]).float().mean().item()


def main():
    x, y, nbrs = make_graph()
    split = torch.randperm(NODES, generator=torch.Generator().manual_seed(1))
    train_idx, valid_idx = split[:1600], split[1600:]
    sampler = NeighbourSampler(nbrs, 2)
    model = Sage()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-4)
    step = 0
    while step < STEPS:
        order = train_idx[torch.randperm(len(train_idx), generator=sampler.g)]
        for seeds in order.split(BATCH):
            n_id, src, dst = sampler.sample(seeds)
            feats = x[n_id] if GATHER else x
            loss = F.cross_entropy(model(feats, src, dst, len(seeds)), y[seeds])
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 20 == 0:
                print(f"step {step:4d} loss {loss.item():.4f}", flush=True)
            step += 1
            if step == STEPS:
                break
        vl, va = evaluate(model, x, y, nbrs, valid_idx)
        print(f"  valid loss {vl:.4f} accuracy {va:.4f}", flush=True)
    print(f"final valid accuracy {va:.4f}")


if __name__ == "__main__":
    main()
