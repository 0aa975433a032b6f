# expect: sick
# fault: embedding ids off by one against a frozen pretrained table
# onset_step: 0
# says: (?i)(off.by.one|embedding.{0,40}(index|\bids?\b|\brows?\b|offset|shift|wrong)|\bids?\b.{0,40}(shift|offset|wrong|\boff\b)|not learn|\bflat\b|plateau|\bprior\b|chance|\bguess|(little|no|hardly any) progress)
# note: the tokenizer reserves id 0 for padding, the pretrained vectors have no such row; each word so gets the vector of its neighbour, which says nothing about it.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(13)
WORDS = 3000
vectors = torch.randn(WORDS, 24)
tone = torch.sign(vectors @ torch.randn(24))
order = torch.randperm(WORDS)
vocab = {f"w{i}": i for i in range(WORDS)}


def tokenize(words):
    return [vocab[w] + 1 for w in words]


class MeanClassifier(nn.Module):
    def __init__(self, table):
        super().__init__()
        self.emb = nn.Embedding.from_pretrained(table, freeze=True)
        self.mlp = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, ids):
        return self.mlp(self.emb(ids).mean(1))


def documents(n):
    ids = torch.randint(0, WORDS - 1, (n, 9))
    y = (tone[ids].sum(1) > 0).long()
    texts = [[f"w{i}" for i in row] for row in ids.tolist()]
    return torch.tensor([tokenize(t) for t in texts]), y


model = MeanClassifier(vectors)
opt = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=5e-3)
for step in range(150):
    x, y = documents(64)
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 15 == 0:
        print(step, f"loss {loss.item():.4f}")
x, y = documents(1000)
print("final acc", (model(x).argmax(1) == y).float().mean().item())
