# expect: sick
# symptom: first loss is normal, from the second step on the loss is nan
# axis: precision
# cause: model and Adam state are float16, eps=1e-8 underflows to 0 and small squared gradients are 0 in half, so the update is 0/0 or x/0 = nan/inf
# says: (fp16|float16|half|16.?bit)[^.]{0,140}(eps|adam|underflow|optimi[sz]er|param|weight|moment|update|master)|(eps|1e-0?8)[^.]{0,100}(underflow|round|zero|\b0\b|too small|half|fp16|float16)|(adam|optimi[sz]er)\w*[^.]{0,100}(fp16|float16|half)|master (weight|copy)|(param|weight|optimi[sz]er|model)\w*[^.]{0,60}(fp32|float32)
# onset_step: 1
# fix: keep parameters and optimizer state in float32 (autocast for compute), or at least eps >= 1e-4
# mended: MENDED=1 keeps the model's parameters in float32
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

DTYPE = torch.float32 if MENDED else torch.float16
VOCAB, TOPICS = 1200, 60
Q_LEN, D_LEN = 6, 18


class ClickLog:
    """Query and clicked document share a topic; each topic has its own words plus common words."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)
        self.words = self.rng.integers(200, VOCAB, size=(TOPICS, 30))

    def _text(self, topics, length, p_topic):
        n = len(topics)
        own = self.words[topics[:, None], self.rng.integers(0, 30, size=(n, length))]
        common = self.rng.integers(0, 200, size=(n, length))
        return np.where(self.rng.random((n, length)) < p_topic, own, common)

    def batch(self, n):
        topics = self.rng.permutation(TOPICS)[:n]
        q = self._text(topics, Q_LEN, 0.7)
        d = self._text(topics, D_LEN, 0.5)
        return torch.from_numpy(q), torch.from_numpy(d)


class Tower(nn.Module):
    def __init__(self, emb, d=64, out=48):
        super().__init__()
        self.emb = emb
        self.score = nn.Linear(d, 1)
        self.mlp = nn.Sequential(nn.Linear(d, 128), nn.GELU(), nn.Linear(128, out))

    def forward(self, ids):
        h = self.emb(ids)
        w = self.score(h).softmax(1)
        return self.mlp((w * h).sum(1))


class Retriever(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        emb = nn.Embedding(VOCAB, d)
        self.query, self.doc = Tower(emb, d), Tower(emb, d)
        self.log_scale = nn.Parameter(torch.tensor(2.3))

    def forward(self, q, d):
        a = F.normalize(self.query(q).float(), dim=-1)
        b = F.normalize(self.doc(d).float(), dim=-1)
        return self.log_scale.float().exp().clamp(max=50) * a @ b.t()


def info_nce(logits):
    y = torch.arange(logits.size(0))
    return 0.5 * (F.cross_entropy(logits, y) + F.cross_entropy(logits.t(), y))


@torch.no_grad()
def recall_at_1(model, log, rounds=8):
    hits = []
    for _ in range(rounds):
        logits = model(*log.batch(48))
        hits.append((logits.argmax(1) == torch.arange(48)).float().mean().item())
    return float(np.mean(hits))


def main():
    torch.manual_seed(9)
    train, test = ClickLog(seed=0), ClickLog(seed=0)
    test.rng = np.random.default_rng(99)
    model = Retriever().to(DTYPE)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(400):
        q, d = train.batch(48)
        loss = info_nce(model(q, d))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step < 5 or step % 25 == 0:
            print(f"step {step:4d} loss {loss.item():.4f} scale {model.log_scale.float().exp().item():.2f}")
        if step % 100 == 99:
            print(f"   recall@1 {recall_at_1(model, test):.3f}")


if __name__ == "__main__":
    main()
