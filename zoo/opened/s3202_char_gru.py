# expect: sick
# symptom: the loss falls for some ten steps, then jumps up and down and climbs far above its first value
# axis: optimizer
# cause: gradients are zeroed only once per epoch, so each optimizer step uses the sum of all earlier micro-batches
# says: zero_?\s?grad|zeroe?d|(stale|old|previous|earlier|leftover).*grad|grad\w*.*(clear|reset|carr|sum of|never)
# onset_step: 1
# fix: call zero_grad after every optimizer step rather than once per epoch
# mended: the script applies that change if the environment has MENDED=1
"""Character level GRU language model on a generated log corpus, with gradient accumulation."""

import math
import os
import random
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
FLAG = os.environ.get("MENDED") == "1"

HOSTS = ["alpha", "bravo", "delta", "kilo", "oscar"]
VERBS = ["started", "stopped", "restarted", "failed", "queued"]
UNITS = ["worker", "scheduler", "cache", "gateway", "indexer"]


def make_corpus(n_lines, seed):
    r = random.Random(seed)
    lines = []
    minute = 0
    for _ in range(n_lines):
        minute = (minute + r.choice([1, 1, 2])) % 60
        h, u = r.choice(HOSTS), r.choice(UNITS)
        v = r.choice(VERBS[:3]) if u != "cache" else r.choice(VERBS[3:])
        lines.append(f"[{minute:02d}] {h}: {u} {v} code={len(h) + len(v)}\n")
    return "".join(lines)


class CharStream:
    """Contiguous BPTT stream, batch_size parallel tracks."""

    def __init__(self, ids, batch_size, bptt):
        n = len(ids) // batch_size
        self.data = ids[: n * batch_size].view(batch_size, n)
        self.bptt = bptt

    def __len__(self):
        return (self.data.size(1) - 1) // self.bptt

    def __iter__(self):
        for k in range(len(self)):
            a = k * self.bptt
            yield self.data[:, a : a + self.bptt], self.data[:, a + 1 : a + self.bptt + 1]


class CharGRU(nn.Module):
    def __init__(self, vocab, dim=32, hidden=96):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, hidden, batch_first=True)
        self.out = nn.Linear(hidden, vocab)

    def forward(self, x, h=None):
        y, h = self.rnn(self.emb(x), h)
        return self.out(y), h


@torch.no_grad()
def evaluate(model, stream):
    h, total, n = None, 0.0, 0
    for x, y in stream:
        logits, h = model(x, h)
        total += F.cross_entropy(logits.flatten(0, 1), y.flatten()).item()
        n += 1
    return total / n


def train_epoch(model, opt, stream, accum, state, log_every=15):
    model.train()
    hidden = None
    opt.zero_grad()
    for i, (x, y) in enumerate(stream):
        logits, hidden = model(x, hidden)
        hidden = hidden.detach()
        loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
        (loss / accum).backward()
        if (i + 1) % accum == 0:
            opt.step()
            FLAG and opt.zero_grad()
            if state["step"] % log_every == 0:
                print(f"step {state['step']:4d} loss {loss.item():.4f} ppl {math.exp(min(loss.item(), 20)):.2f}")
            state["step"] += 1


def main():
    torch.manual_seed(0)
    text = make_corpus(9000, seed=1)
    chars = sorted(set(text))
    stoi = {c: i for i, c in enumerate(chars)}
    ids = torch.tensor([stoi[c] for c in text])
    split = int(0.95 * len(ids))
    train = CharStream(ids[:split], batch_size=32, bptt=40)
    valid = CharStream(ids[split:], batch_size=16, bptt=40)
    model = CharGRU(len(chars))
    opt = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    state = {"step": 0}
    print(f"vocab {len(chars)}  micro-batches per epoch {len(train)}")
    for epoch in range(3):
        train_epoch(model, opt, train, accum=2, state=state)
        print(f"== epoch {epoch} valid loss {evaluate(model, valid):.4f}")


if __name__ == "__main__":
    main()
