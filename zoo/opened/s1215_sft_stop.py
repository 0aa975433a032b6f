# expect: sick
# symptom: the loss and the token accuracy look right, but generation never stops: after the right answer the model goes on to the length limit
# axis: data
# cause: the padding token is the EOS token and the collator sets every label equal to the pad id to -100, so the real EOS at the end of each answer is masked too and never learned
# says: (eos|end[- ]of[- ](sequence|text|answer|turn)|stop|terminat).{0,160}(mask|pad|ignor|-100|label|never (learn|train|supervis)|not (learn|train|supervis)|exclud)|(mask|pad|ignor|-100).{0,160}(eos|end[- ]of[- ]|stop token|terminat)
# onset_step: 0
# fix: use a pad token of its own, or mask by position (attention mask / length), not by token id
# mended: labels are masked by the length of each row, so the EOS after the answer is kept
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(8)


class CharTokenizer:
    def __init__(self):
        self.chars = list("abcdefghijklmnop>:")
        self.stoi = {c: i + 2 for i, c in enumerate(self.chars)}
        self.bos_token_id, self.eos_token_id = 0, 1
        self.pad_token_id = self.eos_token_id
        self.vocab_size = len(self.chars) + 2

    def encode(self, s):
        return [self.stoi[c] for c in s]

    def decode(self, ids):
        return "".join(self.chars[i - 2] if i > 1 else {0: "<s>", 1: "</s>"}[i] for i in ids)


def make_pair(r):
    n = int(r.integers(3, 9))
    w = "".join(r.choice(list("abcdefghijklmnop"), n))
    return w, w[::-1]


class SFTCollator:
    def __init__(self, tok):
        self.tok = tok

    def __call__(self, rows):
        tok = self.tok
        seqs, plen = [], []
        for q, a in rows:
            prompt = [tok.bos_token_id] + tok.encode(q + ">")
            seqs.append(prompt + tok.encode(a) + [tok.eos_token_id])
            plen.append(len(prompt))
        n = max(map(len, seqs))
        ids = torch.full((len(seqs), n), tok.pad_token_id)
        for i, s in enumerate(seqs):
            ids[i, : len(s)] = torch.tensor(s)
        pos = torch.arange(n)[None]
        length = torch.tensor([len(s) for s in seqs])[:, None]
        labels = ids.clone()
        labels[pos >= length if MENDED else ids == tok.pad_token_id] = -100
        labels[pos < torch.tensor(plen)[:, None]] = -100
        return {"input_ids": ids, "labels": labels}


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class GPT(nn.Module):
    def __init__(self, vocab, d=64, h=4, layers=3, ctx=40):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(ctx, d)
        self.blocks = nn.ModuleList(Block(d, h) for _ in range(layers))
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, vocab, bias=False)
        for m in self.modules():
            if isinstance(m, (nn.Linear, nn.Embedding)):
                nn.init.normal_(m.weight, std=0.05)

    def forward(self, input_ids, labels=None):
        x = self.tok(input_ids) + self.pos(torch.arange(input_ids.shape[1]))
        for b in self.blocks:
            x = b(x)
        logits = self.head(self.norm(x))
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)
        return logits, loss

    @torch.no_grad()
    def generate(self, ids, eos, max_new=16):
        self.eval()
        out = []
        for _ in range(max_new):
            nxt = self(ids)[0][0, -1].argmax().item()
            if nxt == eos:
                break
            out.append(nxt)
            ids = torch.cat([ids, torch.tensor([[nxt]])], 1)
        self.train()
        return out, nxt == eos


def evaluate(model, tok, pairs):
    exact = stopped = prefix = 0
    for q, a in pairs:
        ids = torch.tensor([[tok.bos_token_id] + tok.encode(q + ">")])
        out, stop = model.generate(ids, tok.eos_token_id)
        s = tok.decode(out)
        exact, stopped, prefix = exact + (s == a), stopped + stop, prefix + s.startswith(a)
    n = len(pairs)
    print(
        f"  eval: exact {exact / n:.2f} starts-with-answer {prefix / n:.2f} ended {stopped / n:.2f}; e.g. {q} -> {s}",
        flush=True,
    )


def main():
    tok, r = CharTokenizer(), np.random.default_rng(4)
    collate, model = SFTCollator(tok), GPT(tok.vocab_size)
    test = [make_pair(r) for _ in range(40)]
    steps, lr = 600, 2e-3
    opt = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.98), weight_decay=0.01)
    for step in range(steps):
        for g in opt.param_groups:
            g["lr"] = lr * min(1, (step + 1) / 30) * (0.5 * (1 + math.cos(math.pi * step / steps)) * 0.95 + 0.05)
        batch = collate([make_pair(r) for _ in range(48)])
        logits, loss = model(**batch)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 20 == 0:
            tgt = batch["labels"][:, 1:]
            acc = (logits[:, :-1].argmax(-1) == tgt)[tgt != -100].float().mean()
            print(f"step {step} loss {loss.item():.4f} token_acc {acc.item():.3f}", flush=True)
        if (step + 1) % 200 == 0:
            evaluate(model, tok, test)


if __name__ == "__main__":
    main()
