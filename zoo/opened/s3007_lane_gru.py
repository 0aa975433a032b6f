# expect: sick
# symptom: the language model stays near the unigram entropy, the train loss hardly falls, accuracy is poor
# axis: data
# cause: the token stream is folded with view(n, lanes), so a lane jumps by many tokens at every time step
# says: reshap|\bview\b|transpos|interleav|strid|layout|not (consecutive|adjacent|contiguous)|lanes? jump|fold
# onset_step: 0
# fix: fold the stream as view(lanes, n).t() so that each lane is a contiguous piece of the text
# mended: the script applies that change if the environment has MENDED=1
"""Stateful GRU language model over a long event log (truncated BPTT)."""

import math
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
FLAG = os.environ.get("MENDED") == "1"
CFG = dict(vocab=48, lanes=16, bptt=20, emb=32, hid=96, lr=4e-3, steps=320, clip=1.0, seed=11)


def make_log(n, vocab, rng):
    """An event log: every event type has four usual followers, plus rare surprises."""
    follow = np.stack([rng.choice(vocab, 4, replace=False) for _ in range(vocab)])
    probs = np.array([0.55, 0.25, 0.12, 0.08])
    out = np.empty(n, dtype=np.int64)
    cur = 0
    picks = rng.choice(4, size=n, p=probs)
    odd = rng.random(n) < 0.03
    rnd = rng.integers(0, vocab, n)
    for i in range(n):
        cur = rnd[i] if odd[i] else follow[cur, picks[i]]
        out[i] = cur
    return torch.from_numpy(out)


class LaneStream:
    """Cuts the log into parallel lanes and serves windows of bptt events in order."""

    def __init__(self, ids, lanes, bptt):
        n = len(ids) // lanes
        ids = ids[: n * lanes]
        self.grid = ids.view(lanes, n).t() if FLAG else ids.view(n, lanes)
        self.bptt = bptt

    def __iter__(self):
        for i in range(0, self.grid.size(0) - 1 - self.bptt, self.bptt):
            x = self.grid[i : i + self.bptt]
            y = self.grid[i + 1 : i + 1 + self.bptt]
            yield i == 0, x, y


class EventLM(nn.Module):
    def __init__(self, vocab, emb, hid):
        super().__init__()
        self.emb = nn.Embedding(vocab, emb)
        self.rnn = nn.GRU(emb, hid)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(hid, vocab)

    def forward(self, x, h=None):
        z, h = self.rnn(self.emb(x), h)
        return self.head(self.drop(z)), h


@torch.no_grad()
def next_event_accuracy(model, ids):
    model.eval()
    logits, _ = model(ids[:-1].unsqueeze(1))
    loss = F.cross_entropy(logits.squeeze(1), ids[1:]).item()
    acc = (logits.squeeze(1).argmax(-1) == ids[1:]).float().mean().item()
    model.train()
    return loss, acc


def main():
    torch.manual_seed(CFG["seed"])
    rng = np.random.default_rng(CFG["seed"])
    log = make_log(46_000, CFG["vocab"], rng)
    train_ids, test_ids = log[:44_000], log[44_000:]
    stream = LaneStream(train_ids, CFG["lanes"], CFG["bptt"])
    model = EventLM(CFG["vocab"], CFG["emb"], CFG["hid"])
    opt = torch.optim.Adam(model.parameters(), lr=CFG["lr"])
    freq = torch.bincount(train_ids, minlength=CFG["vocab"]).float()
    p = freq / freq.sum()
    print(f"events {len(train_ids)}  unigram entropy {-(p * (p + 1e-9).log()).sum():.3f}")
    step, t0 = 0, time.time()
    while step < CFG["steps"]:
        h = None
        for first, x, y in stream:
            h = None if first else h.detach()
            logits, h = model(x, h)
            loss = F.cross_entropy(logits.reshape(-1, CFG["vocab"]), y.reshape(-1))
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), CFG["clip"])
            opt.step()
            step += 1
            if step % 20 == 0:
                print(f"step {step:4d} loss {loss.item():.4f} ppl {math.exp(loss.item()):.2f}")
            if step >= CFG["steps"]:
                break
    tl, acc = next_event_accuracy(model, test_ids)
    print(
        f"final train loss {loss.item():.4f} test loss {tl:.4f} next-event accuracy {acc:.3f} ({time.time() - t0:.0f}s)"
    )


if __name__ == "__main__":
    main()
