# expect: healthy
# symptom: the loss stays rough on a floor and bumps up when the rate restarts (resembles a too high rate)
# axis: schedule
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(6)

N_NODES, N_TOPICS, N_WORDS = 900, 5, 120


def citation_graph(seed=0):
    """Papers with bag-of-words features; papers cite mostly within their topic."""
    g = torch.Generator().manual_seed(seed)
    topic = torch.randint(0, N_TOPICS, (N_NODES,), generator=g)
    word_rate = torch.rand(N_TOPICS, N_WORDS, generator=g).pow(3) * 0.12 + 0.02
    words = (torch.rand(N_NODES, N_WORDS, generator=g) < word_rate[topic]).float()
    same = (topic.unsqueeze(0) == topic.unsqueeze(1)).float()
    prob = same * 0.018 + (1 - same) * 0.0015
    upper = torch.triu(torch.rand(N_NODES, N_NODES, generator=g) < prob, diagonal=1).float()
    return words, topic, upper + upper.t()


def normalise(adj):
    adj = adj + torch.eye(adj.shape[0])
    inv = adj.sum(1).rsqrt()
    return (inv.unsqueeze(1) * adj * inv.unsqueeze(0)).to_sparse()


class GraphConv(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.lin = nn.Linear(n_in, n_out)

    def forward(self, x, adj):
        return torch.sparse.mm(adj, self.lin(x))


class TopicGCN(nn.Module):
    def __init__(self, hidden=32, p=0.5):
        super().__init__()
        self.c1 = GraphConv(N_WORDS, hidden)
        self.c2 = GraphConv(hidden, N_TOPICS)
        self.p = p

    def forward(self, x, adj):
        x = F.dropout(x, 0.4, self.training)
        x = F.relu(self.c1(x, adj))
        return self.c2(F.dropout(x, self.p, self.training), adj)


@torch.no_grad()
def evaluate(model, x, adj, y, idx):
    model.eval()
    out = model(x, adj)
    model.train()
    return F.cross_entropy(out[idx], y[idx]).item(), (out[idx].argmax(1) == y[idx]).float().mean().item()


def main():
    x, y, adj = citation_graph()
    adj = normalise(adj)
    order = torch.randperm(N_NODES)
    train_idx, val_idx = order[:300], order[300:]
    model = TopicGCN()
    opt = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.2)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=70, eta_min=1e-4)
    for step in range(280):
        out = model(x, adj)
        loss = F.cross_entropy(out[train_idx], y[train_idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 10 == 0:
            print(f"step {step:4d} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.5f}")
        if step % 70 == 69:
            vl, va = evaluate(model, x, adj, y, val_idx)
            print(f"  val loss {vl:.4f} acc {va:.3f}")
    vl, va = evaluate(model, x, adj, y, val_idx)
    print(f"final loss {loss.item():.4f} val_loss {vl:.4f} val_acc {va:.3f}")


if __name__ == "__main__":
    main()
