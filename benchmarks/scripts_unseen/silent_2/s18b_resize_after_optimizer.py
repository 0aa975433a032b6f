# expect: sick
# fault: embedding and head re-made after the optimizer was built
# onset_step: 80
# says: (?i)(optimi[sz]er|stale|old (model|param|copy|head)|not in|not (updat|mov|chang|train)|never (updat|mov|chang|step|train)|param.*(without|no) grad|re-?creat|replac|unchanged)
# note: after 80 steps the embedding is grown for new tokens by making new Parameters, which the optimizer does not know, so embedding and head stay still from there.
import itertools
import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self, V, C, d=32):
        super().__init__()
        self.emb = nn.Embedding(V, d)
        self.conv = nn.Conv1d(d, d, 3, padding=1)
        self.head = nn.Linear(d, C)

    def resize(self, V, C):
        e, h = self.emb, self.head
        self.emb = nn.Embedding(V, e.embedding_dim)
        self.head = nn.Linear(h.in_features, C)
        with torch.no_grad():
            self.emb.weight[: e.num_embeddings] = e.weight
            self.head.weight[: h.out_features] = h.weight
            self.head.bias[: h.out_features] = h.bias

    def forward(self, x):
        z = self.emb(x).transpose(1, 2)
        return self.head((z + torch.relu(self.conv(z))).transpose(1, 2))


def stream(V, C):
    while True:
        x = torch.randint(0, V, (16, 12))
        yield x, (x * 7 + x.roll(1, 1)) % C


class Learner:
    def __init__(self, V, C):
        self.net = Tagger(V, C)
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=5e-3)
        self.n = 0

    def learn(self, data, steps):
        for x, y in itertools.islice(data, steps):
            loss = nn.functional.cross_entropy(self.net(x).flatten(0, 1), y.flatten())
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.n += 1
            if self.n % 20 == 0:
                print(f"{self.n}: {loss.item():.3f}")


torch.manual_seed(2)
L = Learner(20, 4)
L.learn(stream(20, 4), 80)
print("new vocabulary and labels arrive")
L.net.resize(40, 8)
L.learn(stream(40, 8), 120)
