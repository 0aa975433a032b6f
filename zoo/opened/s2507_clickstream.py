# expect: sick
# symptom: loss falls a little and then sits on a plateau, validation AUC is stuck far below the expected one, nothing explodes
# axis: precision
# cause: absolute unix timestamps are stored as float32, whose spacing at 1.7e9 is 128 seconds, so the gaps between events differenced from them are rounded to 0 or 128 and the dwell times are lost
# says: (?=[\s\S]*(time.?stamp|epoch|unix|event time|absolute time|clock|time column|\bts\b|\btimes\b|seconds))(?=[\s\S]*(float.?32|fp32|single.?precision|32.?bit|round|resolution|precision|mantissa|quanti[sz]|128|\bulp\b))
# onset_step: 1
# fix: take the difference of the timestamps in float64 and cast only the gaps to float32
# mended: yes
"""Purchase intent from click streams: a bidirectional GRU over page type and dwell time."""

import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(11)

PAGES = ["home", "search", "product", "reviews", "cart", "help", "blog"]
LENGTH = 30


class ClickLog:
    """Synthetic log table in the layout of the warehouse export."""

    def __init__(self, n_sessions, seed):
        rng = np.random.default_rng(seed)
        self.page = rng.integers(0, len(PAGES), size=(n_sessions, LENGTH))
        gap = rng.lognormal(mean=2.3, sigma=0.8, size=(n_sessions, LENGTH))
        start = rng.uniform(1_704_067_200, 1_711_929_600, size=(n_sessions, 1))
        self.time = start + np.cumsum(gap, axis=1)
        dwell = np.log(np.diff(self.time, axis=1))
        page = self.page[:, 1:]
        prod = np.where(page == 2, dwell - 2.3, 0).sum(1)
        revw = np.where(page == 3, dwell - 2.3, 0).sum(1)
        hlp = (page == 5).sum(1) - (LENGTH - 1) / len(PAGES)
        score = 1.1 * prod + 0.9 * revw - 0.35 * hlp
        self.bought = (score + rng.logistic(scale=0.3, size=n_sessions) > 0).astype(np.float32)

    def __len__(self):
        return len(self.page)


def to_tensors(log):
    page = torch.as_tensor(log.page[:, 1:], dtype=torch.long)
    if MENDED:
        stamps = torch.as_tensor(log.time, dtype=torch.float64)
    else:
        stamps = torch.as_tensor(log.time, dtype=torch.float32)
    gaps = stamps.diff(dim=1).float()
    feats = torch.log1p(gaps)
    feats = (feats - feats.mean()) / feats.std()
    return page, feats, torch.as_tensor(log.bought)


class IntentNet(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.page = nn.Embedding(len(PAGES), 12)
        self.gap = nn.Sequential(nn.Linear(1, 12), nn.Tanh())
        self.rnn = nn.GRU(24, width, batch_first=True, bidirectional=True)
        self.out = nn.Sequential(nn.LayerNorm(2 * width), nn.Linear(2 * width, 32), nn.GELU(), nn.Linear(32, 1))

    def forward(self, page, gap):
        x = torch.cat([self.page(page), self.gap(gap.unsqueeze(-1))], dim=-1)
        h, _ = self.rnn(x)
        return self.out(h.mean(1)).squeeze(-1)


def auc(score, label):
    order = score.argsort()
    rank = torch.empty_like(score)
    rank[order] = torch.arange(1, len(score) + 1, dtype=score.dtype)
    pos = label.sum()
    neg = len(label) - pos
    return ((rank[label == 1].sum() - pos * (pos + 1) / 2) / (pos * neg)).item()


def main():
    train = to_tensors(ClickLog(20000, seed=1))
    valid = to_tensors(ClickLog(3000, seed=2))
    net = IntentNet()
    opt = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.01)
    steps = 420
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=4e-3, total_steps=steps)
    gen = torch.Generator().manual_seed(5)
    run = None
    for step in range(1, steps + 1):
        idx = torch.randint(0, len(train[0]), (96,), generator=gen)
        page, gap, label = (t[idx] for t in train)
        loss = F.binary_cross_entropy_with_logits(net(page, gap), label)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        sched.step()
        run = loss.item() if run is None else 0.95 * run + 0.05 * loss.item()
        if step % 30 == 0:
            print(f"step {step:4d}  loss {run:.4f}")
        if step % 140 == 0:
            net.eval()
            with torch.no_grad():
                score = net(valid[0], valid[1])
            print(f"           valid auc {auc(score, valid[2]):.4f}")
            net.train()


if __name__ == "__main__":
    main()
