# expect: sick
# symptom: the training loss falls almost to zero, jumps to 2 to 4 (above the ln 8 = 2.08 of guessing), falls again, in a regular saw-tooth; accuracy on held-out text stays near chance
# axis: data
# cause: the stream reads shards sorted by class one after the other and the shuffle buffer is far smaller than a shard, so batches hold nearly one class at a time
# says: shuffl|\bsorted\b|buffer|interleav|(sequential|class by class|shard by shard|one (class|label|shard|intent|file) (at a time|after|per)|single[- ](class|intent|label)|(same|one) (class|label|intent)|homogen|grouped|ordered by|order of (the )?(shards|classes|data|files)|non[- ]?iid|not i\.?i\.?d)
# onset_step: 20
# fix: interleave the shards / shuffle over the whole data (a buffer much larger than a shard)
# mended: shuffle buffer of 8192 samples (the whole epoch) instead of 64
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(11)

CFG = dict(vocab=300, length=20, intents=8, per_shard=640, buffer=8192 if MENDED else 64, batch=32, lr=1e-3, epochs=4)
INTENTS = ["alarm", "balance", "cancel", "delivery", "exchange", "flight", "greeting", "hotel"]

topic = np.random.default_rng(5).dirichlet(np.full(CFG["vocab"], 0.08), CFG["intents"])
common = np.random.default_rng(6).dirichlet(np.full(CFG["vocab"], 0.5))


def sentences(intent, n, seed):
    r = np.random.default_rng([seed, intent])
    p = 0.3 * topic[intent] + 0.7 * common
    return r.choice(CFG["vocab"], size=(n, CFG["length"]), p=p / p.sum()) + 1


class Shard:
    """One exported file, e.g. export/alarm-000.jsonl"""

    def __init__(self, intent, n, seed):
        self.name = f"export/{INTENTS[intent]}-{seed:03d}.jsonl"
        self.x, self.y = sentences(intent, n, seed), intent

    def __iter__(self):
        for row in self.x:
            yield torch.from_numpy(row), self.y


class IntentStream(IterableDataset):
    def __init__(self, shards, buffer, seed=0):
        self.shards, self.buffer, self.seed, self.epoch = shards, buffer, seed, 0

    def raw(self):
        for s in self.shards:
            yield from s

    def __iter__(self):
        r = np.random.default_rng([self.seed, self.epoch])
        self.epoch += 1
        buf = []
        for item in self.raw():
            if len(buf) < self.buffer:
                buf.append(item)
                continue
            j = r.integers(len(buf))
            out, buf[j] = buf[j], item
            yield out
        r.shuffle(buf)
        yield from buf


class Encoder(nn.Module):
    def __init__(self, vocab, d=64, heads=4, layers=2, n_cls=8, length=20):
        super().__init__()
        self.emb = nn.Embedding(vocab + 1, d)
        self.pos = nn.Parameter(torch.randn(1, length, d) * 0.02)
        layer = nn.TransformerEncoderLayer(
            d, heads, 2 * d, dropout=0.1, batch_first=True, norm_first=True, activation="gelu"
        )
        self.enc = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, n_cls)

    def forward(self, x):
        h = self.enc(self.emb(x) + self.pos)
        return self.head(self.norm(h.mean(1)))


@torch.no_grad()
def evaluate(model, shards):
    model.eval()
    ok = n = 0
    for s in shards:
        pred = model(torch.from_numpy(s.x)).argmax(-1)
        ok, n = ok + (pred == s.y).sum().item(), n + len(s.x)
    model.train()
    return ok / n


def main():
    train = IntentStream([Shard(i, CFG["per_shard"], 0) for i in range(CFG["intents"])], CFG["buffer"])
    dev = [Shard(i, 60, 1) for i in range(CFG["intents"])]
    model = Encoder(CFG["vocab"], n_cls=CFG["intents"], length=CFG["length"])
    opt = torch.optim.AdamW(model.parameters(), lr=CFG["lr"], weight_decay=0.01)
    total = CFG["epochs"] * CFG["per_shard"] * CFG["intents"] // CFG["batch"]
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 20) * max(0.05, 1 - s / total))
    step = 0
    for epoch in range(CFG["epochs"]):
        for x, y in DataLoader(train, batch_size=CFG["batch"], drop_last=True):
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            if step % 5 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.2e}", flush=True)
            step += 1
        print(f"epoch {epoch} dev accuracy {evaluate(model, dev):.3f}", flush=True)


if __name__ == "__main__":
    main()
