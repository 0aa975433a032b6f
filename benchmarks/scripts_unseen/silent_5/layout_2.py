# expect: sick
# fault: logits [batch, time, vocab] are reshaped to [batch, vocab, time] for cross entropy instead of transposed, so the scores of different tokens are mixed
# onset_step: 1
# says: (?i)(view|reshape|permut|transpos|axes|channels|scrambl|layout)
import math
from dataclasses import dataclass

import torch
from torch import nn

torch.set_num_threads(1)


@dataclass
class Config:
    vocab: int = 20
    length: int = 32
    dim: int = 48
    batch: int = 24
    steps: int = 220
    lr: float = 3e-3
    seed: int = 11


def make_corpus(cfg, n=800):
    g = torch.Generator().manual_seed(cfg.seed)
    table = torch.randint(0, cfg.vocab, (cfg.vocab, 2), generator=g)
    seq = torch.zeros(n, cfg.length + 1, dtype=torch.long)
    seq[:, 0] = torch.randint(0, cfg.vocab, (n,), generator=g)
    for t in range(cfg.length):
        pick = (torch.rand(n, generator=g) < 0.15).long()
        seq[:, t + 1] = table[seq[:, t], pick]
    return seq


class CharModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Embedding(cfg.vocab, cfg.dim)
        self.core = nn.GRU(cfg.dim, cfg.dim, num_layers=2, batch_first=True)
        self.norm = nn.LayerNorm(cfg.dim)
        self.out = nn.Linear(cfg.dim, cfg.vocab)

    def forward(self, tokens):
        h, _ = self.core(self.embed(tokens))
        return self.out(self.norm(h))


class Trainer:
    def __init__(self, cfg):
        torch.manual_seed(cfg.seed)
        self.cfg = cfg
        self.data = make_corpus(cfg)
        self.model = CharModel(cfg)
        self.criterion = nn.CrossEntropyLoss()
        self.optim = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr)

    def batch(self):
        idx = torch.randint(0, len(self.data), (self.cfg.batch,))
        chunk = self.data[idx]
        return chunk[:, :-1], chunk[:, 1:]

    def step(self):
        src, nxt = self.batch()
        logits = self.model(src)
        scores = logits.reshape(logits.size(0), self.cfg.vocab, -1)
        loss = self.criterion(scores, nxt)
        self.optim.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optim.step()
        return loss.item()

    def fit(self):
        for i in range(self.cfg.steps):
            value = self.step()
            if i % 40 == 0:
                print(f"iter {i:4d}  loss {value:.3f}  ppl {math.exp(value):.2f}")


Trainer(Config()).fit()
