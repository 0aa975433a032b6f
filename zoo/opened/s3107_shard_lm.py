# expect: sick
# symptom: the loss jumps far above its earlier level right after the resume on the second shard, and ends worse
# axis: data
# cause: on resume the vocabulary is rebuilt from the new shard's counts, so word ids no longer fit the embeddings
# says: vocab|stoi|(token|word).{0,15}(id|index|map|number)s?\b.{0,40}(differ|chang|perm|mismatch|rebuil|order|fit)
# onset_step: 220
# fix: keep the vocabulary of the checkpoint when the run resumes
# mended: the script applies that change if the environment has MENDED=1
import io
import math
import os
from collections import Counter

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
CTX, BATCH, DIM = 24, 32, 64
STEPS_PER_SHARD = 220


def make_lexicon(rng, n=240):
    syl = ["ka", "lo", "mi", "ren", "tu", "sha", "vo", "pel", "dri", "an", "os", "ek"]
    words = set()
    while len(words) < n:
        words.add("".join(rng.choice(syl, rng.integers(2, 4))))
    return sorted(words)


class Corpus:
    """Documents about topics; inside a topic, words follow each other with a few preferred successors."""

    def __init__(self, seed=5, topics=8):
        rng = np.random.default_rng(seed)
        self.words = make_lexicon(rng)
        self.topics = [rng.choice(len(self.words), 60, replace=False) for _ in range(topics)]
        self.succ = {(t, int(w)): rng.choice(pool, 3) for t, pool in enumerate(self.topics) for w in pool}

    def shard(self, seed, mix, docs=500):
        rng = np.random.default_rng(seed)
        mix = np.asarray(mix, dtype=float)
        out = []
        for t in rng.choice(len(self.topics), docs, p=mix / mix.sum()):
            w = int(rng.choice(self.topics[t]))
            doc = []
            for _ in range(40):
                doc.append(self.words[w])
                w = int(rng.choice(self.succ[(t, w)], p=[0.7, 0.2, 0.1]))
            out.append(doc)
        return out


class Vocab:
    def __init__(self, itos):
        self.itos = itos
        self.stoi = {w: i for i, w in enumerate(itos)}

    @classmethod
    def from_docs(cls, docs, size=256):
        counts = Counter(w for d in docs for w in d)
        itos = ["<unk>"] + [w for w, _ in counts.most_common(size - 1)]
        return cls(itos)

    def encode(self, docs):
        return torch.tensor([[self.stoi.get(w, 0) for w in d] for d in docs])


class LM(nn.Module):
    def __init__(self, vocab=256):
        super().__init__()
        self.emb = nn.Embedding(vocab, DIM)
        self.rnn = nn.GRU(DIM, 96, batch_first=True)
        self.proj = nn.Linear(96, DIM)
        self.bias = nn.Parameter(torch.zeros(vocab))
        nn.init.normal_(self.emb.weight, std=0.15)

    def forward(self, x):
        h, _ = self.rnn(self.emb(x))
        return self.proj(h) @ self.emb.weight.t() + self.bias


def lm_loss(model, ids):
    logits = model(ids[:, :-1])
    return F.cross_entropy(logits.reshape(-1, logits.size(-1)), ids[:, 1:].reshape(-1))


def batches(ids, steps, gen):
    for _ in range(steps):
        rows = torch.randint(0, ids.size(0), (BATCH,), generator=gen)
        at = int(torch.randint(0, ids.size(1) - CTX, (1,), generator=gen))
        yield ids[rows, at : at + CTX + 1]


def train_on_shard(docs, ckpt, gen, total):
    vocab = Vocab.from_docs(docs)
    model = LM()
    opt = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min(1.0, (s + 1) / 20) * 0.5 * (1.03 + math.cos(math.pi * min(s, total) / total))
    )
    step = 0
    if ckpt is not None:
        state = torch.load(io.BytesIO(ckpt))
        model.load_state_dict(state["model"])
        opt.load_state_dict(state["opt"])
        sched.load_state_dict(state["sched"])
        step = state["step"]
        if MENDED:
            vocab = Vocab(state["itos"])
        print(f"resumed at step {step}")
    for ids in batches(vocab.encode(docs), STEPS_PER_SHARD, gen):
        loss = lm_loss(model, ids)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(f"step {step:4d} loss {loss.item():.4f}")
        step += 1
    buf = io.BytesIO()
    torch.save(
        {
            "model": model.state_dict(),
            "opt": opt.state_dict(),
            "sched": sched.state_dict(),
            "step": step,
            "itos": vocab.itos,
        },
        buf,
    )
    return model, vocab, buf.getvalue()


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    corpus = Corpus()
    shards = [corpus.shard(11, [3, 3, 2, 2, 2, 1, 1, 1]), corpus.shard(12, [1, 1, 2, 2, 2, 3, 3, 3])]
    held = corpus.shard(13, [1] * 8, docs=120)
    ckpt = None
    for docs in shards:
        model, vocab, ckpt = train_on_shard(docs, ckpt, gen, STEPS_PER_SHARD * len(shards))
        model.eval()
        with torch.no_grad():
            val = lm_loss(model, vocab.encode(held)).item()
        print(f"held-out loss {val:.4f} perplexity {math.exp(val):.2f}")


if __name__ == "__main__":
    main()
