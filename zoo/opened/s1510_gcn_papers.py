# expect: sick
# symptom: the loss is nan from the very first step of the graph network, whatever the learning rate
# axis: data
# cause: the adjacency is normalised with D^-1/2 although some nodes have no edge (no self loops are added): degree 0 gives 1/sqrt(0) = inf, and inf * 0 = nan spreads through the propagation matrix
# says: isolated|self.?loop|zero.{0,12}degree|degree.{0,20}(zero|0\b)|no (edges|neighbou?rs)|without (any )?(edges|neighbou?rs)|divi\w+ by (zero|0).{0,60}(degree|adjacen)|(degree|adjacen|D\^?-?1/2|deg\b).{0,80}(inf|nan|divi\w+ by (zero|0))|(inf|nan).{0,80}(degree|adjacen|D\^-1/2)
# onset_step: 0
# fix: add self loops (A + I) before the normalisation (or set inf entries of D^-1/2 to 0)
# mended: adds the identity to the adjacency before it is normalised
import argparse
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)


def make_citation_graph(n_nodes, n_classes, n_words, rng):
    """Papers with a topic; papers of one topic cite each other more often."""
    topic = rng.integers(0, n_classes, n_nodes)
    same = topic[:, None] == topic[None, :]
    prob = np.where(same, 0.03, 0.0022)
    upper = np.triu(rng.random((n_nodes, n_nodes)) < prob, 1)
    adj = (upper | upper.T).astype(np.float32)
    profile = rng.random((n_classes, n_words)) < 0.12
    base = np.where(profile[topic], 0.09, 0.035)
    words = (rng.random((n_nodes, n_words)) < base).astype(np.float32)
    return torch.from_numpy(adj), torch.from_numpy(words), torch.from_numpy(topic)


def row_normalize(x):
    return x / x.sum(1, keepdim=True).clamp(min=1.0)


def normalize_adj(adj, loop_weight=0.0):
    adj = adj + loop_weight * torch.eye(adj.size(0))
    deg = adj.sum(1)
    d_inv_sqrt = deg.pow(-0.5)
    return d_inv_sqrt[:, None] * adj * d_inv_sqrt[None, :]


class GraphConv(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_in, d_out))
        self.bias = nn.Parameter(torch.zeros(d_out))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x, adj):
        return adj @ (x @ self.weight) + self.bias


class GCN(nn.Module):
    def __init__(self, d_in, hidden, n_classes, dropout=0.5):
        super().__init__()
        self.conv1 = GraphConv(d_in, hidden)
        self.conv2 = GraphConv(hidden, n_classes)
        self.dropout = dropout

    def forward(self, x, adj):
        x = F.dropout(x, self.dropout, self.training)
        h = F.relu(self.conv1(x, adj))
        h = F.dropout(h, self.dropout, self.training)
        return self.conv2(h, adj)


def accuracy(logits, y, idx):
    return (logits[idx].argmax(1) == y[idx]).float().mean().item()


def train(args):
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    adj, x, y = make_citation_graph(args.nodes, args.classes, args.words, rng)
    x = row_normalize(x)
    adj_n = normalize_adj(adj, loop_weight=1.0 if MENDED else 0.0)

    perm = torch.from_numpy(rng.permutation(args.nodes))
    idx_train, idx_val, idx_test = perm[:150], perm[150:300], perm[300:]

    model = GCN(args.words, args.hidden, args.classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=5e-4)

    for epoch in range(args.epochs):
        model.train()
        optimizer.zero_grad()
        out = model(x, adj_n)
        loss = F.cross_entropy(out[idx_train], y[idx_train])
        loss.backward()
        optimizer.step()

        if epoch % 20 == 0 or epoch == args.epochs - 1:
            model.eval()
            with torch.no_grad():
                out = model(x, adj_n)
            print(
                f"epoch {epoch:4d} loss {loss.item():.4f} "
                f"train acc {accuracy(out, y, idx_train):.3f} val acc {accuracy(out, y, idx_val):.3f}",
                flush=True,
            )
    model.eval()
    with torch.no_grad():
        print("test acc %.3f" % accuracy(model(x, adj_n), y, idx_test))


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--nodes", type=int, default=500)
    p.add_argument("--classes", type=int, default=5)
    p.add_argument("--words", type=int, default=200)
    p.add_argument("--hidden", type=int, default=32)
    p.add_argument("--lr", type=float, default=0.01)
    p.add_argument("--epochs", type=int, default=200)
    p.add_argument("--seed", type=int, default=7)
    train(p.parse_args())
