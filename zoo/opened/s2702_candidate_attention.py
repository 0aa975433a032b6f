# expect: sick
# symptom: training is fine for some 200 steps, then the loss becomes NaN from one step to the next and stays NaN
# axis: model
# cause: rows with an empty history have every key masked with -inf, so the softmax over the fully masked row is 0/0 and gives NaN
# says: ((all|every|each|fully|entire\w*|complete\w*|whole|only|no (valid|unmasked|real))\b.{0,80}(mask|padd?|-\s?inf|neg\w* infin).{0,200}(nan|softmax|0/0|non-?finite))|((empty|zero[- ]length|no)\b.{0,20}\b(histor|sequence|user|item|row).{0,200}(nan|softmax|mask|0/0))|((softmax|nan).{0,160}((all|every|fully|entirely|completely)\W.{0,40}(mask|-\s?inf|padd)|(empty|zero[- ]length|no) (histor|sequence)))
# onset_step: 211
# fix: mask with a large finite negative value (or zero the output of empty rows) instead of -inf
# mended: yes
"""Click-through model with target-item attention over the recent history.

The click log is replayed in time order (one pass, as in the nightly refresh
job).  Day by day, with one line of metrics per day.
"""

import os
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)


@dataclass
class Cfg:
    n_items: int = 200
    n_topics: int = 8
    dim: int = 24
    max_hist: int = 20
    batch: int = 256
    days: int = 14
    batches_per_day: int = 35
    lr: float = 8e-3
    seed: int = 20


class ClickLog:
    """Impressions: (history, candidate item, hour, clicked)."""

    def __init__(self, cfg):
        self.cfg = cfg
        self.rng = np.random.default_rng(cfg.seed)
        self.topic = self.rng.integers(0, cfg.n_topics, cfg.n_items + 1)
        self.quality = self.rng.normal(0, 0.7, cfg.n_items + 1)
        self.by_topic = [np.flatnonzero(self.topic[1:] == t) + 1 for t in range(cfg.n_topics)]

    def day(self, d):
        cfg, rng = self.cfg, self.rng
        # the sign-up campaign starts on day six
        new_share = 0.0 if d < 6 else 0.03
        for _ in range(cfg.batches_per_day):
            hist = np.zeros((cfg.batch, cfg.max_hist), dtype=np.int64)
            cand = rng.integers(1, cfg.n_items + 1, cfg.batch)
            hour = rng.integers(0, 24, cfg.batch)
            logit = self.quality[cand] - 1.8 + 0.3 * np.sin(hour / 24 * 2 * np.pi)
            newcomers = rng.random(cfg.batch) < new_share
            for b in range(cfg.batch):
                length = 0 if newcomers[b] else int(rng.integers(1, cfg.max_hist + 1))
                liked = rng.integers(0, cfg.n_topics, 2)
                if rng.random() < 0.4:
                    liked[0] = self.topic[cand[b]]
                for j in range(length):
                    hist[b, j] = rng.choice(self.by_topic[liked[j % 2]])
                if length and self.topic[cand[b]] in self.topic[hist[b, :length]]:
                    logit[b] += 3.4
            clicked = rng.random(cfg.batch) < 1 / (1 + np.exp(-logit))
            yield (
                torch.from_numpy(hist),
                torch.from_numpy(cand),
                torch.from_numpy(hour),
                torch.from_numpy(clicked.astype(np.float32)),
            )


class TargetAttention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim)
        self.v = nn.Linear(dim, dim)
        self.scale = dim**-0.5
        self.fill = -1e9 if os.environ.get("MENDED") == "1" else float("-inf")

    def forward(self, query, keys, pad_mask):
        scores = torch.einsum("bd,bld->bl", self.q(query), self.k(keys)) * self.scale
        scores = scores.masked_fill(pad_mask, self.fill)
        weights = scores.softmax(dim=-1)
        return torch.einsum("bl,bld->bd", weights, self.v(keys))


class CTRNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.items = nn.Embedding(cfg.n_items + 1, cfg.dim, padding_idx=0)
        self.hours = nn.Embedding(24, 4)
        self.attn = TargetAttention(cfg.dim)
        self.mlp = nn.Sequential(
            nn.Linear(3 * cfg.dim + 4, 64),
            nn.PReLU(),
            nn.Linear(64, 32),
            nn.PReLU(),
            nn.Linear(32, 1),
        )
        nn.init.normal_(self.items.weight, std=0.3)
        with torch.no_grad():
            self.items.weight[0].zero_()

    def forward(self, hist, cand, hour):
        e = self.items(cand)
        interest = self.attn(e, self.items(hist), hist.eq(0))
        x = torch.cat([e, interest, e * interest, self.hours(hour)], dim=-1)
        return self.mlp(x).squeeze(-1)


def auc(scores, labels):
    order = torch.argsort(scores)
    ranks = torch.empty_like(order, dtype=torch.float64)
    ranks[order] = torch.arange(1, len(order) + 1, dtype=torch.float64)
    pos = labels.bool()
    n1, n0 = int(pos.sum()), int((~pos).sum())
    return ((ranks[pos].sum() - n1 * (n1 + 1) / 2) / max(n1 * n0, 1)).item()


def main():
    cfg = Cfg()
    torch.manual_seed(cfg.seed)
    log = ClickLog(cfg)
    net = CTRNet(cfg)
    opt = torch.optim.Adam(net.parameters(), lr=cfg.lr)
    bce = nn.BCEWithLogitsLoss()
    step = 0
    for d in range(cfg.days):
        seen_scores, seen_labels, losses = [], [], []
        for hist, cand, hour, clicked in log.day(d):
            logits = net(hist, cand, hour)
            loss = bce(logits, clicked)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            opt.step()
            step += 1
            losses.append(loss.item())
            seen_scores.append(logits.detach())
            seen_labels.append(clicked)
        a = auc(torch.cat(seen_scores), torch.cat(seen_labels))
        print(f"day {d:2d}  step {step:4d}  logloss {np.mean(losses):.4f}  progressive AUC {a:.4f}")


if __name__ == "__main__":
    main()
