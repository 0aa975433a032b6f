# expect: healthy
# symptom: few labels, full batch, noisy loss (dropout 0.6), slow start; resembles underfitting or a leak
# axis: data
"""Semi-supervised node classification with a two-layer GCN on a synthetic citation graph."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

N, TOPICS, WORDS, LABELS_PER_TOPIC = 1200, 6, 300, 20


def citation_graph(seed):
    gen = torch.Generator().manual_seed(seed)
    topic = torch.randint(0, TOPICS, (N,), generator=gen)
    same = topic[:, None] == topic[None, :]
    prob = torch.where(same, torch.tensor(0.020), torch.tensor(0.0012))
    upper = torch.triu(torch.rand(N, N, generator=gen) < prob, diagonal=1)
    adj = (upper | upper.T).float()
    # bag of words: every topic prefers some words, most words are common
    taste = 0.02 + 0.10 * (torch.rand(TOPICS, WORDS, generator=gen) < 0.08).float()
    words = (torch.rand(N, WORDS, generator=gen) < taste[topic]).float()
    return words, adj, topic


def normalised(adj):
    a = adj + torch.eye(len(adj))
    d = a.sum(dim=1).rsqrt()
    return (d[:, None] * a * d[None, :]).to_sparse()


def split(topic, seed):
    gen = torch.Generator().manual_seed(seed)
    order = torch.randperm(N, generator=gen)
    train = torch.cat([order[topic[order] == c][:LABELS_PER_TOPIC] for c in range(TOPICS)])
    rest = order[~torch.isin(order, train)]
    return train, rest[:300], rest[300:]


class GCN(nn.Module):
    def __init__(self, hidden=32, dropout=0.6):
        super().__init__()
        self.lin1 = nn.Linear(WORDS, hidden, bias=False)
        self.bias1 = nn.Parameter(torch.zeros(hidden))
        self.lin2 = nn.Linear(hidden, TOPICS, bias=False)
        self.bias2 = nn.Parameter(torch.zeros(TOPICS))
        self.drop = nn.Dropout(dropout)

    def forward(self, x, a_hat):
        h = F.relu(a_hat @ self.lin1(self.drop(x)) + self.bias1)
        return a_hat @ self.lin2(self.drop(h)) + self.bias2


@torch.no_grad()
def score(net, x, a_hat, topic, idx):
    net.eval()
    out = net(x, a_hat)[idx]
    return F.cross_entropy(out, topic[idx]).item(), (out.argmax(1) == topic[idx]).float().mean().item()


def main():
    torch.manual_seed(9)
    words, adj, topic = citation_graph(6)
    x = words / words.sum(dim=1, keepdim=True).clamp(min=1)
    a_hat = normalised(adj)
    train, valid, test = split(topic, 2)
    net = GCN()
    opt = torch.optim.Adam(
        [
            {"params": [net.lin1.weight, net.bias1], "weight_decay": 5e-4},
            {"params": [net.lin2.weight, net.bias2], "weight_decay": 0.0},
        ],
        lr=0.01,
    )
    for epoch in range(250):
        net.train()
        loss = F.cross_entropy(net(x, a_hat)[train], topic[train])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if epoch % 10 == 0:
            vl, va = score(net, x, a_hat, topic, valid)
            print(f"epoch {epoch:3d} train loss {loss.item():.4f} valid loss {vl:.4f} valid acc {va:.3f}")
    tl, ta = score(net, x, a_hat, topic, test)
    print(f"final train loss {loss.item():.4f} test loss {tl:.4f} test accuracy {ta:.3f}")


if __name__ == "__main__":
    main()
