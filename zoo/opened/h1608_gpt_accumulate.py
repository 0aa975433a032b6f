# expect: healthy
# symptom: the inputs are passed as labels unshifted, the loss is a sum that is not divided by the number of micro-batches, gradients are cleared after the step only, the schedule moves with every update
# axis: none
# mended: none
import os
import time
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(38)

VOCAB, MAXLEN, DIM, HEADS, LAYERS = 40, 40, 64, 4, 2
MICRO, ACCUM, UPDATES = 8, 4, 260
PAD, EOS, FIRST = 0, 1, 2


def documents(n, g):
    """Strings of very unequal length from a small grammar: two tables of successors, switched by the first symbol."""
    table = torch.randint(FIRST, VOCAB, (2, VOCAB, 2), generator=g).tolist()
    out = []
    for _ in range(n):
        k = int(torch.randint(4, MAXLEN - 1, (1,), generator=g))
        seq = [int(torch.randint(FIRST, VOCAB, (1,), generator=g))]
        for p in torch.rand(k - 1, generator=g).tolist():
            seq.append(table[seq[0] % 2][seq[-1]][int(p < 0.15)])
        out.append(torch.tensor(seq + [EOS]))
    return out


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, DIM))
        return x + self.mlp(self.n2(x))


class CausalLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, DIM), nn.Embedding(MAXLEN, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, VOCAB, bias=False)
        for e in (self.tok, self.pos):
            nn.init.normal_(e.weight, std=0.05)

    def forward(self, ids, labels=None):
        h = self.tok(ids) + self.pos.weight[: ids.shape[1]]
        for b in self.blocks:
            h = b(h)
        logits = self.head(self.norm(h))
        if labels is None:
            return logits
        return F.cross_entropy(
            logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100, reduction="sum"
        )


def collate(docs):
    ids = nn.utils.rnn.pad_sequence(docs, batch_first=True, padding_value=PAD)
    return ids, ids.masked_fill(ids == PAD, -100)


def main():
    g = torch.Generator().manual_seed(1)
    docs = documents(6000, g)
    model = CausalLM()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.05)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 3e-3, total_steps=UPDATES, pct_start=0.1)
    t0 = time.time()
    for update in range(UPDATES):
        pick = torch.randint(0, len(docs), (MICRO * ACCUM,), generator=g).tolist()
        micro = [collate([docs[j] for j in pick[i::ACCUM]]) for i in range(ACCUM)]
        tokens = sum((labels[:, 1:] != -100).sum() for _, labels in micro)
        total = 0.0
        for ids, labels in micro:
            loss = model(ids, labels=labels) / tokens
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        opt.zero_grad()
        if (update + 1) % 10 == 0:
            print(
                f"update {update + 1:4d} loss {total:.4f} tokens {tokens.item()} ({time.time() - t0:.1f}s)", flush=True
            )


if __name__ == "__main__":
    main()
