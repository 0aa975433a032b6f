# expect: healthy
# symptom: train loss stays high and above the validation loss, as if the model underfits or the labels leak
# axis: none
"""Graph convolution on a noisy-label citation graph, full batch, strong dropout."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
SEED, STEPS, NODES, TOPICS, WORDS, LABEL_NOISE = 9, 220, 900, 6, 120, 0.25


def citation_graph(gen):
    topic = torch.arange(NODES) % TOPICS
    same = topic[:, None] == topic[None, :]
    prob = same.float() * 0.035 + (~same).float() * 0.003
    upper = (torch.rand(NODES, NODES, generator=gen) < prob).triu(1)
    adj = (upper | upper.T).float()
    usual = torch.rand(TOPICS, WORDS, generator=gen).pow(6) * 0.35 + 0.02
    words = (torch.rand(NODES, WORDS, generator=gen) < usual[topic]).float()
    return adj, words, topic


def propagate_matrix(adj):
    adj = adj + torch.eye(len(adj))
    d = adj.sum(1).rsqrt()
    return d[:, None] * adj * d[None, :]


class Gcn(nn.Module):
    def __init__(self, hidden=32, drop=0.6):
        super().__init__()
        self.first = nn.Linear(WORDS, hidden, bias=False)
        self.second = nn.Linear(hidden, TOPICS)
        self.drop = drop

    def forward(self, p, x):
        x = F.dropout(x, self.drop, self.training)
        h = F.relu(p @ self.first(x))
        h = F.dropout(h, self.drop, self.training)
        return p @ self.second(h)


def main():
    torch.manual_seed(SEED)
    gen = torch.Generator().manual_seed(SEED)
    adj, x, topic = citation_graph(gen)
    p = propagate_matrix(adj)
    x = x / x.sum(1, keepdim=True).clamp(min=1)
    order = torch.randperm(NODES, generator=gen)
    train, valid, test = order[:300], order[300:500], order[500:]
    tags = topic.clone()
    wrong = train[torch.rand(len(train), generator=gen) < LABEL_NOISE]
    tags[wrong] = torch.randint(0, TOPICS, (len(wrong),), generator=gen)

    model = Gcn()
    opt = torch.optim.Adam(
        [
            {"params": model.first.parameters(), "weight_decay": 5e-4},
            {"params": model.second.parameters(), "weight_decay": 0.0},
        ],
        lr=0.02,
    )
    best, keep = float("inf"), None
    for step in range(1, STEPS + 1):
        model.train()
        loss = F.cross_entropy(model(p, x)[train], tags[train])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0 or step == 1:
            model.eval()
            with torch.no_grad():
                out = model(p, x)
                vloss = F.cross_entropy(out[valid], tags[valid]).item()
                vacc = (out[valid].argmax(1) == tags[valid]).float().mean().item()
            if vloss < best:
                best, keep = vloss, {k: v.clone() for k, v in model.state_dict().items()}
            print(f"step {step} train loss {loss.item():.4f} valid loss {vloss:.4f} valid accuracy {vacc:.3f}")
    model.load_state_dict(keep)
    model.eval()
    with torch.no_grad():
        acc = (model(p, x).argmax(1)[test] == topic[test]).float().mean().item()
    print(f"final best valid loss {best:.4f} test accuracy {acc:.3f}")


if __name__ == "__main__":
    main()
