# expect: sick
# symptom: link embedding trains well for a while, then the loss turns NaN from one step to the next
# axis: loss
# cause: a random negative pair can join a node with itself, its distance is exactly zero, and the gradient of the square root at zero is 0 times infinity, that is NaN
# says: sqrt|square[- ]root|self[- ](pair|loop|negative)|(zero|0)[- ]distance|distance[^.]*(zero|\b0\b)|(same|identical) node|(eps|epsilon)[^.]*(distance|norm|root)|(norm|distance)[^.]*(eps|epsilon)
# onset_step: 35
# fix: add a small epsilon under the square root (or drop negatives with u == v)
# mended: yes
import argparse
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"


def stochastic_blocks(n, groups, gen, p_in=0.1, p_out=0.001):
    block = torch.arange(n) % groups
    same = block[:, None] == block[None, :]
    prob = torch.where(same, torch.tensor(p_in), torch.tensor(p_out))
    upper = torch.triu(torch.rand(n, n, generator=gen) < prob, diagonal=1)
    edges = upper.nonzero().t()
    feats = F.one_hot(block, groups).float()
    feats = 1.5 * feats + torch.randn(n, groups, generator=gen)
    return feats, edges


def normalised_adjacency(edges, n):
    loops = torch.arange(n)
    src = torch.cat([edges[0], edges[1], loops])
    dst = torch.cat([edges[1], edges[0], loops])
    deg = torch.zeros(n).index_add_(0, dst, torch.ones(len(dst)))
    w = deg[src].rsqrt() * deg[dst].rsqrt()
    return torch.sparse_coo_tensor(torch.stack([dst, src]), w, (n, n), check_invariants=False).coalesce()


class GCN(nn.Module):
    def __init__(self, d_in, hidden, d_out):
        super().__init__()
        self.l1 = nn.Linear(d_in, hidden)
        self.l2 = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, d_out)

    def forward(self, adj, x):
        h = F.relu(torch.sparse.mm(adj, self.l1(x)))
        h = h + F.relu(torch.sparse.mm(adj, self.l2(h)))
        return self.out(h)


def pair_distance(z, u, v):
    sq = (z[u] - z[v]).pow(2).sum(-1)
    if MENDED:
        sq = sq + 1e-8
    return sq.sqrt()


def link_loss(z, pos, neg, margin):
    d_pos = pair_distance(z, pos[0], pos[1])
    d_neg = pair_distance(z, neg[0], neg[1])
    return d_pos.pow(2).mean() + F.relu(margin - d_neg).pow(2).mean()


@torch.no_grad()
def auc(z, pos, neg):
    sp = -(z[pos[0]] - z[pos[1]]).norm(dim=-1)
    sn = -(z[neg[0]] - z[neg[1]]).norm(dim=-1)
    return (sp[:, None] > sn[None, :]).float().mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--nodes", type=int, default=1200)
    ap.add_argument("--groups", type=int, default=16)
    ap.add_argument("--steps", type=int, default=500)
    ap.add_argument("--pairs", type=int, default=16)
    ap.add_argument("--margin", type=float, default=2.0)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--seed", type=int, default=5)
    args = ap.parse_args()

    gen = torch.Generator().manual_seed(args.seed)
    torch.manual_seed(args.seed)
    x, edges = stochastic_blocks(args.nodes, args.groups, gen)
    edges = edges[:, torch.randperm(edges.shape[1], generator=gen)]
    held, train = edges[:, :600], edges[:, 600:]
    test_neg = torch.randint(args.nodes, (2, 600), generator=gen)
    adj = normalised_adjacency(train, args.nodes)

    model = GCN(args.groups, 64, 16)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    running = None
    for step in range(1, args.steps + 1):
        pick = torch.randint(train.shape[1], (8 * args.pairs,), generator=gen)
        neg = torch.randint(args.nodes, (2, args.pairs), generator=gen)
        z = model(adj, x)
        loss = link_loss(z, train[:, pick], neg, args.margin)
        opt.zero_grad()
        loss.backward()
        opt.step()
        running = loss.item() if running is None else 0.95 * running + 0.05 * loss.item()
        if step % 25 == 0:
            print(
                f"step {step} loss {loss.item():.4f} avg {running:.4f} auc {auc(z.detach(), held, test_neg):.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
