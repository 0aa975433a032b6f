# expect: sick
# symptom: contrastive loss falls steadily but recall@10 on the dev queries stays far too low (0.3 where 0.8 is usual); checkpoint selection goes by a misleading number
# axis: harness
# cause: the passage index used in evaluation is stale: document vectors are encoded once, at the first evaluation, and cached, never re-encoded with the current encoder, so fresh query vectors are compared with old document vectors
# says: stale|cached|\bcache\b|out[- ]of[- ]date|outdated|(not|never|isn.t|without)( being)? (re-?encod|re-?embed|rebuil|refresh|recomput|re-?index|updat)\w*\W+(\w+\W+){0,8}(index|document|doc|passage|corpus|encoder|embedding)|(index|document|doc|passage|corpus)\W+(\w+\W+){0,8}(not|never|only once|once)\W+(\w+\W+){0,3}(re-?encod|re-?embed|rebuil|refresh|recomput|updat|encod|built)
# onset_step: 0
# fix: rebuild the index (encode all documents again) before every evaluation
# mended: yes
import copy
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"
torch.manual_seed(3)
torch.set_num_threads(1)

VOCAB, N_DOCS, DOC_LEN, Q_LEN = 3000, 1500, 40, 8


def build_collection(seed=0):
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(VOCAB, 0.01), size=60)
    synonyms = rng.permutation(VOCAB)
    docs = np.zeros((N_DOCS, DOC_LEN), dtype=np.int64)
    for i in range(N_DOCS):
        mix = rng.dirichlet([0.3] * 4)
        t = rng.choice(60, size=4, replace=False)
        docs[i] = rng.choice(VOCAB, size=DOC_LEN, p=mix @ topics[t])

    def ask(doc):
        terms = rng.choice(docs[doc], size=Q_LEN, replace=False)
        swap = rng.random(Q_LEN) < 0.8
        return np.where(swap, synonyms[terms], terms)

    train = [(ask(d), d) for d in range(N_DOCS) for _ in range(8)]
    dev = [(ask(d), d) for d in rng.choice(N_DOCS, size=400, replace=False)]
    return torch.from_numpy(docs), train, dev


class Pairs(Dataset):
    def __init__(self, docs, pairs):
        self.docs, self.pairs = docs, pairs

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        q, d = self.pairs[i]
        return torch.from_numpy(q), self.docs[d], d


class Encoder(nn.Module):
    def __init__(self, dim=128):
        super().__init__()
        self.emb = nn.EmbeddingBag(VOCAB, dim, mode="mean")
        self.proj = nn.Sequential(nn.Linear(dim, 256), nn.GELU(), nn.Linear(256, dim))

    def forward(self, ids):
        return F.normalize(self.proj(self.emb(ids)), dim=-1)


class PassageIndex:
    """Exact search over the whole collection."""

    def __init__(self, docs):
        self.docs = docs
        self._vecs = None

    @torch.no_grad()
    def vectors(self, encoder):
        if self._vecs is None or MENDED:
            self._vecs = torch.cat([encoder(c) for c in self.docs.split(512)])
        return self._vecs

    @torch.no_grad()
    def search(self, encoder, queries, k):
        scores = encoder(queries) @ self.vectors(encoder).T
        return scores.topk(k, dim=-1).indices


class RetrieverTrainer:
    def __init__(self, docs, train, dev):
        self.encoder = Encoder()
        self.log_temp = nn.Parameter(torch.tensor(np.log(1 / 0.07), dtype=torch.float32))
        self.opt = torch.optim.Adam(
            [{"params": self.encoder.parameters()}, {"params": [self.log_temp], "lr": 1e-3}], lr=2e-3
        )
        self.loader = DataLoader(Pairs(docs, train), batch_size=128, shuffle=True, drop_last=True)
        self.index = PassageIndex(docs)
        self.dev_q = torch.from_numpy(np.stack([q for q, _ in dev]))
        self.dev_d = torch.tensor([d for _, d in dev])
        self.best, self.best_step, self.best_state = -1.0, None, None
        self.step = 0

    def train_step(self, q, d, doc_id):
        qv, dv = self.encoder(q), self.encoder(d)
        sim = qv @ dv.T * self.log_temp.exp().clamp(max=100.0)
        same = (doc_id[:, None] == doc_id[None, :]) & ~torch.eye(len(doc_id), dtype=torch.bool)
        sim = sim.masked_fill(same, -1e4)
        target = torch.arange(len(q))
        loss = 0.5 * (F.cross_entropy(sim, target) + F.cross_entropy(sim.T, target))
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()

    def evaluate(self):
        self.encoder.eval()
        hits = self.index.search(self.encoder, self.dev_q, 10)
        recall = (hits == self.dev_d[:, None]).any(-1).float().mean().item()
        self.encoder.train()
        if recall > self.best:
            self.best, self.best_step = recall, self.step
            self.best_state = copy.deepcopy(self.encoder.state_dict())
        return recall

    def fit(self, epochs):
        print(f"   dev recall@10 before training {self.evaluate():.3f}")
        for epoch in range(epochs):
            for q, d, doc_id in self.loader:
                loss = self.train_step(q, d, doc_id)
                self.step += 1
                if self.step % 20 == 0:
                    print(f"epoch {epoch} step {self.step} loss {loss:.4f}")
                if self.step % 50 == 0:
                    print(f"   dev recall@10 {self.evaluate():.3f}")
        print(f"selected checkpoint of step {self.best_step}: recall@10 {self.best:.3f}")


if __name__ == "__main__":
    RetrieverTrainer(*build_collection()).fit(epochs=5)
