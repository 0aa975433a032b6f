# expect: sick
# symptom: after the job is restarted from its checkpoint at step 270 the loss jumps from about 0.28 to 0.7 and needs some 50 steps to come back
# axis: harness
# cause: on resume only the model weights and the step are restored, the Adam moments (optimizer state_dict) are saved but never loaded, so Adam starts cold at full learning rate
# says: (optimi[sz]er('s)?[ _-]?(state|moment|statistic|buffer|memory)|state_dict of the opt|adam\w*('s)? (state|moment|statistic|buffer)|\bmoment(s|um)?\b|exp_avg\w*)[^.]{0,120}(not|never|n't|missing|without|fresh|cold|lost|reset|zero|re-?initiali[sz]ed|discard|empty|forgot|omit|drop|start)|(not|never|n't|missing|without|fresh|cold|lost|reset|forgot\w*|omit\w*|fails? to)[^.]{0,80}(optimi[sz]er('s)?[ _-]?(state|moment)|adam\w*('s)? (state|moment)|\bmoments?\b|exp_avg)|(fresh|cold|new|re-?initiali[sz]ed|re-?created|reset) (adam\w*|optimi[sz]er)|(re)?(load|restor)\w*[^.]{0,40}(optimi[sz]er|adam)
# onset_step: 271
# fix: load the optimizer state_dict from the checkpoint on resume
# mended: MENDED=1 restores the optimizer's state together with the model
import io
import os
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

VOCAB = list("abcdefghijklmnopqrstuvwxyz .,")
STOI = {c: i for i, c in enumerate(VOCAB)}
CTX = 48


def make_corpus(n_sentences=6000, seed=7):
    rng = random.Random(seed)
    subjects = ["the miller", "a young sailor", "the old queen", "my brother", "her teacher", "the tall baker"]
    verbs = ["carried", "painted", "forgot", "mended", "followed", "counted"]
    objects = ["the heavy basket", "a silver spoon", "seven white horses", "the garden wall", "an empty boat"]
    places = ["near the river", "behind the church", "in the evening", "before the storm", "on the hill"]
    out = []
    for _ in range(n_sentences):
        s = f"{rng.choice(subjects)} {rng.choice(verbs)} {rng.choice(objects)}"
        if rng.random() < 0.6:
            s += f" {rng.choice(places)}"
        out.append(s + rng.choice([". ", ", and then "]))
    return torch.tensor([STOI[c] for c in "".join(out)])


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(B, T, 3, self.heads, D // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(B, T, D))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, d=64, layers=3, heads=4):
        super().__init__()
        self.tok = nn.Embedding(len(VOCAB), d)
        self.pos = nn.Embedding(CTX, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.ln = nn.LayerNorm(d)
        self.head = nn.Linear(d, len(VOCAB), bias=False)

    def forward(self, idx, targets):
        x = self.tok(idx) + self.pos(torch.arange(idx.size(1)))
        for b in self.blocks:
            x = b(x)
        logits = self.head(self.ln(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Trainer:
    def __init__(self, data, lr=2e-2, warmup=60, batch=12):
        self.data, self.lr, self.warmup, self.batch = data, lr, warmup, batch
        self.model = GPT()
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=lr, betas=(0.9, 0.999), weight_decay=0.05)
        self.step = 0

    def lr_at(self, it):
        return self.lr * min(1.0, (it + 1) / self.warmup)

    def get_batch(self):
        g = torch.Generator().manual_seed(10_000 + self.step)
        ix = torch.randint(0, len(self.data) - CTX - 1, (self.batch,), generator=g)
        x = torch.stack([self.data[i : i + CTX] for i in ix])
        y = torch.stack([self.data[i + 1 : i + CTX + 1] for i in ix])
        return x, y

    def save(self):
        buf = io.BytesIO()
        torch.save({"model": self.model.state_dict(), "opt": self.opt.state_dict(), "step": self.step}, buf)
        return buf.getvalue()

    def resume(self, blob):
        ck = torch.load(io.BytesIO(blob), map_location="cpu")
        self.model.load_state_dict(ck["model"])
        self.step = ck["step"]
        if MENDED:
            self.opt.load_state_dict(ck["opt"])
        print(f"resumed at step {self.step}")

    def run(self, until):
        self.model.train()
        while self.step < until:
            for group in self.opt.param_groups:
                group["lr"] = self.lr_at(self.step)
            loss = self.model(*self.get_batch())
            self.opt.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.opt.step()
            if self.step % 20 == 0 or 268 <= self.step <= 282:
                print(f"step {self.step:4d} loss {loss.item():.4f} lr {self.lr_at(self.step):.2e}")
            self.step += 1


def main():
    torch.manual_seed(1337)
    data = make_corpus()
    first = Trainer(data)
    first.run(until=270)
    blob = first.save()
    del first

    second = Trainer(data)
    second.resume(blob)
    second.run(until=450)


if __name__ == "__main__":
    main()
