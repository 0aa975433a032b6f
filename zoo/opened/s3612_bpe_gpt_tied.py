# expect: sick
# symptom: the loss starts many times above log(vocab), falls during the whole run and ends clearly too high
# axis: model
# cause: the tied embedding/output matrix keeps the default N(0,1) init, so the first logits are enormous
# says: (init|std|N\(0|scale|varian|too large|huge).*(embed|tied|logit)|(embed|tied|logit).*(init|std|scale)
# onset_step: 0
# fix: initialise the tied embedding with std 0.02 like the other weights
# mended: the script applies that change if the environment has MENDED=1
"""nanoGPT style LM with a BPE tokenizer trained on the corpus and shared input/output embeddings."""

import math
import os
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(1337)
rng = random.Random(1337)

# ---- corpus -------------------------------------------------------------------------------------
syll = ["ka", "lo", "mi", "ter", "van", "su", "pre", "don", "ri", "ast", "el", "um", "ga", "ben", "tro", "is"]
lexicon = ["".join(rng.choices(syll, k=rng.choice([1, 2, 2, 3]))) for _ in range(350)]
follow = {w: rng.choices(lexicon, k=4) for w in lexicon}


def document():
    w = rng.choice(lexicon)
    out = [w]
    for _ in range(rng.randrange(20, 60)):
        w = rng.choices(follow[w], weights=[6, 3, 2, 1])[0] if rng.random() < 0.95 else rng.choice(lexicon)
        out.append(w)
    return " ".join(out) + "."


docs = [document() for _ in range(1500)]
tok = Tokenizer(models.BPE())
tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
tok.decoder = decoders.ByteLevel()
tok.train_from_iterator(
    docs, trainers.BpeTrainer(vocab_size=512, special_tokens=["<|endoftext|>"], show_progress=False)
)
stream = []
for e in tok.encode_batch(docs):
    stream += e.ids + [0]
stream = torch.tensor(stream)
split = int(0.95 * len(stream))
train_data, val_data = stream[:split], stream[split:]


# ---- model --------------------------------------------------------------------------------------
class Attention(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h, self.c_attn, self.c_proj = h, nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = (t.view(B, T, self.h, D // self.h).transpose(1, 2) for t in self.c_attn(x).split(D, 2))
        return self.c_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, D))


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(d), Attention(d, h), nn.LayerNorm(d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocab, block, d=128, h=4, layers=2):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, d), nn.Parameter(torch.randn(block, d) * 0.02)
        self.blocks = nn.ModuleList(Block(d, h) for _ in range(layers))
        self.ln_f = nn.LayerNorm(d)
        self.apply(self._init_weights)
        for n, p in self.named_parameters():
            if n.endswith("c_proj.weight"):
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers))

    def _init_weights(self, m):
        if isinstance(m, (nn.Linear, nn.Embedding) if MENDED else nn.Linear):
            nn.init.normal_(m.weight, std=0.02)
            if getattr(m, "bias", None) is not None:
                nn.init.zeros_(m.bias)

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe[: idx.shape[1]]
        for b in self.blocks:
            x = b(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


BLOCK, BATCH, STEPS, LR, WARM = 48, 12, 300, 1e-3, 20
model = GPT(tok.get_vocab_size(), BLOCK)
decay = [p for p in model.parameters() if p.dim() >= 2]
rest = [p for p in model.parameters() if p.dim() < 2]
opt = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=LR, betas=(0.9, 0.95)
)


def get_batch(data):
    ix = torch.randint(len(data) - BLOCK - 1, (BATCH,))
    return (torch.stack([data[i : i + BLOCK] for i in ix]), torch.stack([data[i + 1 : i + BLOCK + 1] for i in ix]))


def get_lr(it):
    if it < WARM:
        return LR * (it + 1) / WARM
    r = (it - WARM) / (STEPS - WARM)
    return 0.1 * LR + 0.45 * LR * (1 + math.cos(math.pi * r))


@torch.no_grad()
def estimate():
    model.eval()
    val = sum(model(*get_batch(val_data)).item() for _ in range(8)) / 8
    model.train()
    return val


for it in range(STEPS):
    for g in opt.param_groups:
        g["lr"] = get_lr(it)
    loss = model(*get_batch(train_data))
    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    if it % 20 == 0:
        print(f"iter {it}: loss {loss.item():.4f}")
    if it % 100 == 99:
        print(f"iter {it}: val loss {estimate():.4f} (uniform {math.log(tok.get_vocab_size()):.2f})")
