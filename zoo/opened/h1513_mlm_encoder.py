# expect: healthy
# symptom: the transformer over tokens has no causal mask, the labels are not shifted, nearly all of them are -100, and a tenth of the chosen inputs is left or replaced by random tokens
# axis: none
# mended: none
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)

PAD, CLS, SEP, MASK, FIRST = 0, 1, 2, 3, 4
CONFIG = dict(
    vocab=64,
    max_len=24,
    d=48,
    heads=4,
    layers=2,
    batch=48,
    lr=3e-3,
    warmup=40,
    epochs=7,
    n_train=3360,
    mlm_prob=0.15,
    seed=9,
)


def make_sentences(n, seed):
    """Sentences with a subject, a verb and an object that depend on one topic and on each other."""
    rng = np.random.default_rng(seed)
    table = np.random.default_rng(0).integers(FIRST, CONFIG["vocab"], (6, 8))
    out = []
    for _ in range(n):
        topic, length = rng.integers(6), rng.integers(10, CONFIG["max_len"] - 2)
        start, stride = rng.integers(8), rng.choice([1, 3])
        ids = table[topic, (start + stride * np.arange(length)) % 8]
        out.append([CLS, *ids.tolist(), SEP])
    return out


class SentenceDataset(Dataset):
    def __init__(self, n, seed):
        self.rows = make_sentences(n, seed)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return torch.tensor(self.rows[i])


class MLMCollator:
    def __init__(self, prob, seed=None):
        self.prob = prob
        self.g = torch.Generator().manual_seed(seed) if seed is not None else None

    def __call__(self, rows):
        ids = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
        labels = ids.clone()
        r = torch.rand(ids.shape, generator=self.g)
        chosen = (r < self.prob) & (ids >= FIRST)
        labels[~chosen] = -100
        how = torch.rand(ids.shape, generator=self.g)
        inputs = ids.clone()
        inputs[chosen & (how < 0.8)] = MASK
        swap = chosen & (how >= 0.8) & (how < 0.9)
        inputs[swap] = torch.randint(FIRST, CONFIG["vocab"], (int(swap.sum()),), generator=self.g)
        return inputs, labels, ids != PAD


class EncoderLayer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.ff = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)

    def forward(self, x, keep):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None, None, :])
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.ff(self.ln2(x))


class MaskedLM(nn.Module):
    def __init__(self, vocab, max_len, d, heads, layers):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d, padding_idx=PAD), nn.Embedding(max_len, d)
        self.layers = nn.ModuleList([EncoderLayer(d, heads) for _ in range(layers)])
        self.head = nn.Sequential(nn.Linear(d, d), nn.GELU(), nn.LayerNorm(d))
        self.bias = nn.Parameter(torch.zeros(vocab))
        nn.init.normal_(self.tok.weight, std=0.05)
        nn.init.normal_(self.pos.weight, std=0.05)

    def forward(self, ids, keep):
        x = self.tok(ids) + self.pos(torch.arange(ids.size(1)))
        for layer in self.layers:
            x = layer(x, keep)
        return F.linear(self.head(x), self.tok.weight, self.bias)


def mlm_loss(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    hit = n = 0
    for ids, labels, keep in loader:
        sel = labels != -100
        hit += (model(ids, keep).argmax(-1)[sel] == labels[sel]).sum().item()
        n += sel.sum().item()
    model.train()
    return hit / n


def main():
    c = CONFIG
    torch.manual_seed(c["seed"])
    loader = DataLoader(
        SentenceDataset(c["n_train"], 1), c["batch"], shuffle=True, collate_fn=MLMCollator(c["mlm_prob"])
    )
    val = DataLoader(SentenceDataset(300, 2), 100, collate_fn=MLMCollator(c["mlm_prob"], seed=5))
    model = MaskedLM(c["vocab"], c["max_len"], c["d"], c["heads"], c["layers"])
    opt = torch.optim.AdamW(model.parameters(), lr=c["lr"], weight_decay=0.01)
    total = c["epochs"] * len(loader)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min((s + 1) / c["warmup"], max(0.0, (total - s) / (total - c["warmup"])))
    )
    step = 0
    with tempfile.TemporaryDirectory() as tmp:
        for epoch in range(c["epochs"]):
            for ids, labels, keep in loader:
                loss = mlm_loss(model(ids, keep), labels)
                opt.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                sched.step()
                if step % 10 == 0:
                    print(f"step {step:4d} mlm loss {loss.item():.4f}", flush=True)
                step += 1
            print(f"epoch {epoch} val masked acc {evaluate(model, val):.3f}", flush=True)
            torch.save(model.state_dict(), os.path.join(tmp, f"epoch{epoch}.pt"))


if __name__ == "__main__":
    main()
