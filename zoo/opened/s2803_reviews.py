# expect: sick
# symptom: accuracy reaches a mediocre level in the first phase and stays there; the announced second phase of fine-tuning brings almost nothing, the loss creeps on without a step down
# axis: optimizer
# cause: the optimizer was built only over the parameters that had requires_grad at the start, so the embedding table that is unfrozen later was never in any param group and is never updated
# says: add_param_group|(optimi[sz]er|param(eter)?[_ ]?groups?).{0,140}(embed|unfr|un-fr|frozen|freez|requires_grad|word.?vectors?)|(embed|unfr|un-fr|frozen|freez|requires_grad|word.?vectors?).{0,160}(optimi[sz]er|param(eter)?[_ ]?groups?)
# onset_step: 201
# fix: optimizer.add_param_group for the embedding when it is unfrozen (or build the optimizer over all parameters)
# mended: yes
"""Sentiment of short product reviews.

Word vectors come from an SVD of the co-occurrence matrix of a large unlabelled
corpus (GloVe style).  They are kept fixed while the classifier settles and are
fine-tuned together with it afterwards.
"""

import os
import random
import sys
import time

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"

CONFIG = dict(
    n_topics=8,
    words_per_topic=40,
    opinion_words=60,
    fillers=100,
    dim=24,
    train_size=4000,
    test_size=800,
    max_len=24,
    batch_size=32,
    freeze_steps=200,
    total_steps=800,
    lr=1.5e-3,
    lr_embed=3e-3,
)


class ReviewWorld:
    """Generates texts: topic nouns, opinion words attached to a topic, filler words."""

    def __init__(self, cfg, seed):
        self.cfg, self.rng = cfg, random.Random(seed)
        self.vocab = ["<pad>"]
        self.topic_words = [self._new(f"t{t}_", cfg["words_per_topic"]) for t in range(cfg["n_topics"])]
        self.pos = [self._new(f"p{t}_", cfg["opinion_words"]) for t in range(cfg["n_topics"])]
        self.neg = [self._new(f"n{t}_", cfg["opinion_words"]) for t in range(cfg["n_topics"])]
        self.filler = self._new("f_", cfg["fillers"])

    def _new(self, prefix, n):
        start = len(self.vocab)
        self.vocab += [f"{prefix}{i}" for i in range(n)]
        return list(range(start, start + n))

    def text(self, label):
        r = self.rng
        t = r.randrange(self.cfg["n_topics"])
        n = r.randint(10, self.cfg["max_len"])
        out = []
        for _ in range(n):
            u = r.random()
            if u < 0.35:
                out.append(r.choice(self.topic_words[t]))
            elif u < 0.70:
                agree = r.random() < 0.75
                side = self.pos if (label == 1) == agree else self.neg
                out.append(r.choice(side[t]))
            else:
                out.append(r.choice(self.filler))
        return out

    def labelled(self, n):
        labels = [self.rng.randrange(2) for _ in range(n)]
        x = torch.zeros(n, self.cfg["max_len"], dtype=torch.long)
        for i, y in enumerate(labels):
            ids = self.text(y)
            x[i, : len(ids)] = torch.tensor(ids)
        return x, torch.tensor(labels)


def svd_vectors(world, n_texts, dim):
    v = len(world.vocab)
    co = np.zeros((v, v), np.float32)
    for _ in range(n_texts):
        ids = np.array(world.text(world.rng.randrange(2)))
        for off in (1, 2, 3):
            np.add.at(co, (ids[:-off], ids[off:]), 1.0 / off)
    co = co + co.T
    total = co.sum()
    marg = co.sum(1, keepdims=True) + 1e-6
    pmi = np.log(np.maximum(co * total / (marg * marg.T), 1.0))
    u, s, _ = np.linalg.svd(pmi, full_matrices=False)
    vec = u[:, :dim] * np.sqrt(s[:dim])
    vec = vec / vec.std()
    vec[0] = 0
    return torch.tensor(vec, dtype=torch.float32)


class TextCNN(nn.Module):
    def __init__(self, vectors, width=32):
        super().__init__()
        self.embed = nn.Embedding.from_pretrained(vectors, freeze=True, padding_idx=0)
        d = vectors.shape[1]
        self.convs = nn.ModuleList([nn.Conv1d(d, width, k, padding=k // 2) for k in (1, 3)])
        self.drop = nn.Dropout(0.3)
        self.out = nn.Linear(2 * width, 2)

    def forward(self, ids):
        mask = (ids != 0).float().unsqueeze(1)
        e = self.embed(ids).transpose(1, 2)
        feats = [(torch.relu(c(e)) * mask).sum(2) / mask.sum(2) for c in self.convs]
        return self.out(self.drop(torch.cat(feats, 1)))


def accuracy(model, x, y):
    model.eval()
    with torch.no_grad():
        acc = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return acc


def run(cfg=CONFIG, seed=7):
    torch.manual_seed(seed)
    world = ReviewWorld(cfg, seed)
    vectors = svd_vectors(world, 3000, cfg["dim"])
    x, y = world.labelled(cfg["train_size"])
    xt, yt = world.labelled(cfg["test_size"])
    model = TextCNN(vectors)
    optimizer = torch.optim.AdamW(
        filter(lambda p: p.requires_grad, model.parameters()), lr=cfg["lr"], weight_decay=1e-4
    )
    criterion = nn.CrossEntropyLoss()
    running, t0 = 0.0, time.time()
    for step in range(1, cfg["total_steps"] + 1):
        if step == cfg["freeze_steps"] + 1:
            print("unfreezing word vectors")
            model.embed.weight.requires_grad_(True)
            if MENDED:
                optimizer.add_param_group({"params": [model.embed.weight], "lr": cfg["lr_embed"]})
        pick = torch.randint(0, len(x), (cfg["batch_size"],))
        loss = criterion(model(x[pick]), y[pick])
        model.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.item()
        if step % 50 == 0:
            print(
                f"[{step}/{cfg['total_steps']}] loss {running / 50:.4f} "
                f"test acc {accuracy(model, xt, yt):.3f} {time.time() - t0:.1f}s"
            )
            running = 0.0
    return accuracy(model, xt, yt)


if __name__ == "__main__":
    final = run()
    print(f"final test accuracy {final:.3f}")
    sys.exit(0)
