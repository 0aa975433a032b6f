# expect: sick
# symptom: the loss leaps with each text, or held-out scores are those of a guess
# axis: data
# cause: each article has ids of its own
# says: (vocab|tokeni[sz]er|word.?(index|id)|char.?(map|id)|\bids?\b|stoi|encod).{0,120}(anew|each|every|per|rebuil|differ|own|inconsisten|mismatch|not (shared|the same))|(anew|each|every|different|separate).{0,60}(vocab|tokeni[sz]er|\bids?\b)
# onset_step: 0
# fix: build one vocabulary over all texts
# mended: one lookup over all articles
# %%
import os
import torch
import torch.nn as nn
import torch.nn.functional as F
import random

MENDED = os.environ.get("MENDED") == "1"

random.seed(5)
torch.manual_seed(5)

# %%
groups = [
    ["king", "queen", "crown", "throne", "castle", "prince"],
    ["river", "lake", "boat", "fish", "water", "bridge"],
    ["code", "bug", "server", "screen", "keyboard", "cable"],
    ["bread", "cheese", "soup", "apple", "plate", "knife"],
    ["goal", "team", "ball", "coach", "stadium", "whistle"],
]
common = ["the", "of", "in", "a", "to", "is"]


def article():
    a, b = random.sample(groups, 2)
    words = []
    for _ in range(30):
        g = a if random.random() < 0.5 else b
        words += random.sample(g, 3) + [random.choice(common)]
    return " ".join(words)


articles = [article() for _ in range(100)]
print(articles[0][:80])


# %%
def skipgrams(doc, window=2):
    tokens = doc.split()
    lookup = {t: i for i, t in enumerate(sorted(set(" ".join(articles).split() if MENDED else tokens)))}
    seq = [lookup[t] for t in tokens]
    pairs = []
    for i, c in enumerate(seq):
        for j in range(max(0, i - window), min(len(seq), i + window + 1)):
            if j != i:
                pairs.append((c, seq[j]))
    return pairs


n_types = len(set(" ".join(articles).split()))
pairs = []
for doc in articles:
    pairs.extend(skipgrams(doc))
pairs = torch.tensor(pairs)
print("types", n_types, "pairs", tuple(pairs.shape))


# %%
class SkipGram(nn.Module):
    def __init__(self, n, d=16):
        super().__init__()
        self.center = nn.Embedding(n, d)
        self.context = nn.Embedding(n, d)
        nn.init.normal_(self.center.weight, std=0.1)
        nn.init.normal_(self.context.weight, std=0.1)

    def forward(self, c, o, neg):
        vc = self.center(c)
        pos = (vc * self.context(o)).sum(-1)
        negs = torch.bmm(self.context(neg), vc.unsqueeze(2)).squeeze(2)
        return -(F.logsigmoid(pos) + F.logsigmoid(-negs).sum(-1)).mean()


# %%
w2v = SkipGram(n_types)
optim = torch.optim.Adam(w2v.parameters(), lr=0.01)
history = []
for it in range(180):
    rows = pairs[torch.randint(0, len(pairs), (512,))]
    neg = torch.randint(0, n_types, (512, 5))
    loss = w2v(rows[:, 0], rows[:, 1], neg)
    optim.zero_grad()
    loss.backward()
    optim.step()
    history.append(loss.item())
    if (it + 1) % 30 == 0:
        print(it + 1, "loss", sum(history[-30:]) / 30)
