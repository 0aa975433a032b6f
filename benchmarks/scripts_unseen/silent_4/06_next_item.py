# expect: sick
# cause: The input embedding is replaced by the pretrained vectors after the output weight was tied to the old one, so the output layer is an untied random table.
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(101)

N_ITEMS, DIM, SEQ = 6000, 64, 10

# vectors of the catalogue as the content team delivers them
styles = F.normalize(torch.randn(60, DIM), dim=1)
item_style = torch.randint(0, 60, (N_ITEMS,))
vectors = 0.9 * styles[item_style] + 0.05 * torch.randn(N_ITEMS, DIM)
members = [torch.nonzero(item_style == s).squeeze(1) for s in range(60)]


def sessions(n):
    """customers mostly stay with two styles for a session"""
    pair = torch.randint(0, 60, (n, 2))
    which = (torch.rand(n, SEQ + 1) < 0.2).long()
    rows = []
    for i in range(n):
        rows.append([members[pair[i, w]][torch.randint(len(members[pair[i, w]]), ())] for w in which[i].tolist()])
    return torch.tensor(rows)


class SessionModel(nn.Module):
    def __init__(self, n_items, dim):
        super().__init__()
        self.items = nn.Embedding(n_items, dim)
        self.mix = nn.GRU(dim, dim, batch_first=True)
        self.proj = nn.Linear(2 * dim, dim)
        self.head = nn.Linear(dim, n_items, bias=False)
        self.head.weight = self.items.weight
        self.scale = nn.Parameter(torch.tensor(6.0))

    def forward(self, ids):
        e = self.items(ids)
        h, _ = self.mix(e)
        running = e.cumsum(1) / torch.arange(1, ids.shape[1] + 1).view(1, -1, 1)
        q = running + 0.3 * self.proj(torch.cat([h, e], -1))
        return self.head(self.scale * q)

    def load_vectors(self, table):
        self.items = nn.Embedding.from_pretrained(table.clone(), freeze=False)


train, test = sessions(1600), sessions(200)
model = SessionModel(N_ITEMS, DIM)
model.load_vectors(vectors)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)


def evaluate():
    model.eval()
    with torch.no_grad():
        logits = model(test[:, :-1])[:, -1]
        ce = F.cross_entropy(logits, test[:, -1]).item()
        hit = (item_style[logits.topk(20).indices] == item_style[test[:, -1:]]).float().mean().item()
    model.train()
    return ce, hit


for step in range(200):
    rows = train[torch.randint(0, len(train), (16,))]
    logits = model(rows[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if (step + 1) % 40 == 0:
        print("step %d train %.4f | test ce %.4f style share in top 20 %.3f" % (step + 1, loss.item(), *evaluate()))
