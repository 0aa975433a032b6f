# expect: sick
# symptom: the loss falls and levels off higher than it should; generated text is garbage although nothing fails
# axis: data
# cause: labels are shifted twice: the dataset already returns targets moved by one and the model shifts them again, so it learns to predict the token after the next
# says: (shift\w*|off.by.one|moved).{0,100}(twice|double|two|again|already|both|second|model|inside|2)|(double|twice|two|second|extra|redundant).{0,40}shift|(token|position)s?.{0,30}(\+ ?2|two (ahead|steps|positions|later)|after (the )?next|t\+2|i\+2)|(skip\w*|next-next|one.{0,20}too far)
# onset_step: 0
# fix: return labels equal to input_ids from the dataset (the model shifts)
# mended: the dataset returns unshifted labels
import os
import math
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(5)
rng = np.random.default_rng(5)

VOCAB, BLOCK = 64, 40
N_BRANCH = 4
SUCC = np.stack([rng.permutation(VOCAB)[:N_BRANCH] for _ in range(VOCAB)])
PROB = np.array([0.55, 0.25, 0.15, 0.05])


def sample_stream(n):
    out = np.empty(n, dtype=np.int64)
    t = 0
    pick = rng.choice(N_BRANCH, size=n, p=PROB)
    for i in range(n):
        t = SUCC[t, pick[i]]
        out[i] = t
    return torch.from_numpy(out)


class BlockDataset(torch.utils.data.Dataset):
    def __init__(self, stream):
        self.stream = stream

    def __len__(self):
        return (len(self.stream) - 1) // BLOCK

    def __getitem__(self, i):
        chunk = self.stream[i * BLOCK : (i + 1) * BLOCK + 1]
        return {"input_ids": chunk[:-1], "labels": chunk[:-1] if MENDED else chunk[1:]}


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.h = heads
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.ln2(x))


class GPTForCausalLM(nn.Module):
    def __init__(self, d=64, layers=2, heads=4):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, d), nn.Embedding(BLOCK, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.ln = nn.LayerNorm(d)
        self.lm_head = nn.Linear(d, VOCAB, bias=False)
        self.apply(self._init)

    @staticmethod
    def _init(m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, std=0.02)

    def forward(self, input_ids, labels=None):
        h = self.tok(input_ids) + self.pos(torch.arange(input_ids.shape[1]))
        for blk in self.blocks:
            h = blk(h)
        logits = self.lm_head(self.ln(h))
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return loss, logits

    @torch.no_grad()
    def generate(self, ids, n):
        for _ in range(n):
            _, logits = self(ids[:, -BLOCK:])
            nxt = torch.multinomial(logits[:, -1].softmax(-1), 1)
            ids = torch.cat([ids, nxt], 1)
        return ids


def valid_fraction(model):
    ids = model.generate(torch.randint(0, VOCAB, (32, 1)), BLOCK - 1).numpy()
    ok = [b in SUCC[a] for row in ids for a, b in zip(row[:-1], row[1:])]
    return float(np.mean(ok))


loader = torch.utils.data.DataLoader(BlockDataset(sample_stream(110000)), batch_size=32, shuffle=True, drop_last=True)
model = GPTForCausalLM()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
TOTAL = 3 * len(loader)
sched = torch.optim.lr_scheduler.LambdaLR(
    opt, lambda s: min(1, (s + 1) / 30) * (0.1 + 0.45 * (1 + math.cos(math.pi * min(1, s / TOTAL))))
)

step = 0
for epoch in range(3):
    for batch in loader:
        loss, _ = model(**batch)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 25 == 0:
            print(f"step {step:4d} loss {loss.item():.4f}")
        step += 1
    print(f"epoch {epoch} valid transitions in samples {valid_fraction(model):.3f}")
