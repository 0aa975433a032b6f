# expect: sick
# symptom: the siamese retriever trains well for several hundred steps, then its loss is nan for good
# axis: loss
# cause: the Euclidean distance is a bare square root whose gradient is infinite at zero; the first pair of identical texts has distance exactly 0 and gives a NaN gradient
# says: (sqrt|square.?root|root|distance|norm).{0,80}(zero|\b0\b|identical|eps|infinite|same|duplicate)|(identical|duplicate|same).{0,50}(pair|text|embedding|sqrt|distance)|zero.{0,20}distance
# onset_step: 601
# fix: add a small epsilon under the square root
# mended: with MENDED=1 the squared distance gets + 1e-8 before the square root
import logging
import os
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("faq")

EPS = 1e-8 if os.environ.get("MENDED") == "1" else 0.0
SYLL = ["ka", "lo", "mi", "ru", "te", "so", "vi", "ne", "da", "po"]


def build_topics(rng, n_topics, words_per_topic):
    words = set()
    while len(words) < n_topics * words_per_topic:
        words.add("".join(rng.choice(SYLL) for _ in range(3)))
    words = sorted(words)
    rng.shuffle(words)
    return [words[i::n_topics] for i in range(n_topics)]


class PairSource:
    """Pairs of questions; 1 = answered by the same FAQ entry, 0 = not."""

    def __init__(self, seed=9, n_topics=40, words_per_topic=6):
        self.rng = random.Random(seed)
        self.topics = build_topics(self.rng, n_topics, words_per_topic)
        self.vocab = {"<pad>": 0}
        for t in self.topics:
            for w in t:
                self.vocab[w] = len(self.vocab)
        self.fillers = [f"w{i}" for i in range(30)]
        for w in self.fillers:
            self.vocab[w] = len(self.vocab)

    def question(self, topic):
        words = self.rng.sample(self.topics[topic], 2) + self.rng.sample(self.fillers, 3)
        self.rng.shuffle(words)
        return words

    def editorial(self, n):
        pairs = []
        for _ in range(n):
            t = self.rng.randrange(len(self.topics))
            if self.rng.random() < 0.5:
                pairs.append((self.question(t), self.question(t), 1.0))
            else:
                u = (t + self.rng.randrange(1, len(self.topics))) % len(self.topics)
                pairs.append((self.question(t), self.question(u), 0.0))
        return pairs

    def click_log(self, n):
        pairs = self.editorial(n)
        for i in range(0, n, 25):
            q, _, _ = pairs[i]
            pairs[i] = (q, list(q), 1.0)
        return pairs

    def encode(self, texts):
        width = max(map(len, texts))
        return torch.tensor([[self.vocab[w] for w in t] + [0] * (width - len(t)) for t in texts])


class Encoder(nn.Module):
    def __init__(self, vocab, dim=48, out=32):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim, padding_idx=0)
        self.proj = nn.Sequential(nn.Linear(dim, 64), nn.Tanh(), nn.Linear(64, out))

    def forward(self, ids):
        mask = (ids != 0).float().unsqueeze(-1)
        h = (self.emb(ids) * mask).sum(1) / mask.sum(1)
        return self.proj(h)


def contrastive_loss(a, b, same, margin=1.0):
    d = torch.sqrt(((a - b) ** 2).sum(-1) + EPS)
    return (same * d**2 + (1 - same) * F.relu(margin - d) ** 2).mean()


@torch.no_grad()
def recall_at_1(model, src):
    queries = src.encode([src.question(t) for t in range(len(src.topics)) for _ in range(5)])
    cards = [src.encode([src.question(t) for _ in range(8)]) for t in range(len(src.topics))]
    docs = torch.stack([model(c).mean(0) for c in cards])
    want = torch.arange(len(src.topics)).repeat_interleave(5)
    return (torch.cdist(model(queries), docs).argmin(1) == want).float().mean().item()


def minibatches(pairs, size, rng):
    rng.shuffle(pairs)
    for i in range(0, len(pairs) - size + 1, size):
        yield pairs[i : i + size]


def main():
    torch.manual_seed(9)
    src = PairSource()
    phases = [("editorial", src.editorial(600 * 64)), ("clicks", src.click_log(200 * 64))]
    model = Encoder(len(src.vocab))
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    step = 0
    for name, pairs in phases:
        log.info("phase %s: %d pairs", name, len(pairs))
        for batch in minibatches(pairs, 64, src.rng):
            a = model(src.encode([p[0] for p in batch]))
            b = model(src.encode([p[1] for p in batch]))
            loss = contrastive_loss(a, b, torch.tensor([p[2] for p in batch]))
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % 50 == 0:
                log.info("step %d loss %.4f recall@1 %.3f", step, loss.item(), recall_at_1(model, src))


if __name__ == "__main__":
    main()
