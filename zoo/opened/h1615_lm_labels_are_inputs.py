# expect: healthy
# symptom: the labels passed to the language model are a plain copy of its input ids, and the scheduler is stepped after every batch
# axis: none
# mended: none
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(19)

VOCAB, PAD, EOS, CTX = 40, 0, 1, 32
EPOCHS, BATCH = 4, 24


class Walks(Dataset):
    """Sentences from a second-order Markov chain over 38 words, of various lengths."""

    def __init__(self, n, seed):
        g = np.random.default_rng(0)
        self.nxt = g.integers(2, VOCAB, (VOCAB, 3, 3))
        r = np.random.default_rng(seed)
        self.rows = []
        for _ in range(n):
            w = [int(r.integers(2, VOCAB)), int(r.integers(2, VOCAB))]
            for _ in range(int(r.integers(12, CTX - 3))):
                w.append(int(self.nxt[w[-1], w[-2] % 3, r.choice(3, p=[0.8, 0.15, 0.05])]))
            self.rows.append(torch.tensor(w + [EOS]))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
    labels = ids.clone()
    labels[ids == PAD] = -100
    return {"input_ids": ids, "labels": labels}


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.n2(x))


class CausalLM(nn.Module):
    def __init__(self, d=80, depth=2, heads=4):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, d), nn.Embedding(CTX, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, VOCAB, bias=False)
        nn.init.normal_(self.tok.weight, std=0.02)
        nn.init.normal_(self.pos.weight, std=0.02)
        self.head.weight = self.tok.weight

    def forward(self, input_ids, labels=None):
        x = self.tok(input_ids) + self.pos.weight[: input_ids.shape[1]]
        for b in self.blocks:
            x = b(x)
        logits = self.head(self.norm(x))
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)
        return loss, logits


@torch.no_grad()
def validate(model, loader):
    model.eval()
    out = np.mean([model(**b)[0].item() for b in loader])
    model.train()
    return out


def main():
    train = DataLoader(
        Walks(3000, 1),
        batch_size=BATCH,
        shuffle=True,
        collate_fn=collate,
        drop_last=True,
        generator=torch.Generator().manual_seed(2),
    )
    val = DataLoader(Walks(300, 2), batch_size=BATCH, collate_fn=collate)
    model = CausalLM()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=3e-3, total_steps=EPOCHS * len(train), pct_start=0.15)
    step = 0
    for epoch in range(EPOCHS):
        for batch in train:
            loss, _ = model(**batch)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad()
            if step % 25 == 0:
                print(f"step {step:4d}  lr {sched.get_last_lr()[0]:.5f}  loss {loss.item():.4f}")
            step += 1
        v = validate(model, val)
        print(f"epoch {epoch}  val loss {v:.4f}  ppl {math.exp(v):.2f}")


if __name__ == "__main__":
    main()
