# expect: sick
# symptom: training and validation loss fall to almost zero within a few hundred steps, yet the text that the model writes is nonsense
# axis: model
# cause: scaled_dot_product_attention is called without is_causal=True (no causal mask), so every position attends to the future characters that it has to predict
# says: (causal|future|look.?ahead|is_causal|autoregressive|triangular).{0,60}(mask|attend|attention|leak|token|position|see|missing|peek)|(mask|attend|attention|leak|see|peek)\w*.{0,60}(causal|future|look.?ahead|is_causal)|not causal|non.?causal
# onset_step: 1
# fix: pass is_causal=True to F.scaled_dot_product_attention
# mended: the attention call gets is_causal=True
import math
import os
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(1337)
random.seed(1337)

MENDED = os.environ.get("MENDED") == "1"

NAMES = ["alice", "bruno", "dmitri", "farid", "hiro", "jonas", "kemal", "laura", "petra", "tanya"]
CITIES = ["oslo", "lima", "cairo", "quito", "delhi", "paris", "milan", "tunis"]
FOODS = ["figs", "rice", "plums", "bread", "soup", "beans"]
facts = {n: (random.choice(CITIES), random.choice(FOODS)) for n in NAMES}


def sentence():
    n = random.choice(NAMES)
    city, food = facts[n]
    if random.random() < 0.5:
        return f"{n} lives in {city} and eats {food}. "
    return f"{n} eats {food} in {city}. "


text = "".join(sentence() for _ in range(6000))
chars = sorted(set(text))
stoi = {c: i for i, c in enumerate(chars)}
data = torch.tensor([stoi[c] for c in text])
n_train = int(0.9 * len(data))
train_data, val_data = data[:n_train], data[n_train:]

block_size, batch_size, n_embd, n_head, n_layer = 48, 24, 64, 4, 2


def get_batch(split):
    d = train_data if split == "train" else val_data
    ix = torch.randint(len(d) - block_size - 1, (batch_size,))
    x = torch.stack([d[i : i + block_size] for i in ix])
    y = torch.stack([d[i + 1 : i + block_size + 1] for i in ix])
    return x, y


class CausalSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.c_attn(x).split(n_embd, dim=2)
        q, k, v = (t.view(B, T, n_head, C // n_head).transpose(1, 2) for t in (q, k, v))
        if MENDED:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            y = F.scaled_dot_product_attention(q, k, v)
        return self.c_proj(y.transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.attn = CausalSelfAttention()
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, n_embd), nn.Embedding(block_size, n_embd)
        self.h = nn.ModuleList(Block() for _ in range(n_layer))
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab, bias=False)

    def forward(self, idx, targets=None):
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1)))
        for b in self.h:
            x = b(x)
        logits = self.lm_head(self.ln_f(x))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def generate(self, idx, n):
        for _ in range(n):
            logits, _ = self(idx[:, -block_size:])
            idx = torch.cat([idx, logits[:, -1].argmax(-1, keepdim=True)], 1)
        return idx


model = GPT(len(chars))
opt = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
max_steps, warmup = 600, 20


def lr_at(s):
    if s < warmup:
        return 3e-3 * (s + 1) / warmup
    return 2e-4 + 1.4e-3 * (1 + math.cos(math.pi * (s - warmup) / (max_steps - warmup)))


for step in range(max_steps):
    for g in opt.param_groups:
        g["lr"] = lr_at(step)
    x, y = get_batch("train")
    _, loss = model(x, y)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    if step % 50 == 0 or step == max_steps - 1:
        model.eval()
        with torch.no_grad():
            vl = sum(model(*get_batch("val"))[1].item() for _ in range(4)) / 4
        model.train()
        print(f"step {step:4d} train {loss.item():.4f} val {vl:.4f}", flush=True)

model.eval()
hits = 0
for n in NAMES:
    city, food = facts[n]
    prompt = f"{n} lives in "
    out = model.generate(torch.tensor([[stoi[c] for c in prompt]]), 24)[0].tolist()
    got = "".join(chars[i] for i in out)[len(prompt) :]
    hits += got.startswith(f"{city} and eats {food}.")
print("sample:", repr(prompt + got))
print(f"facts recalled: {hits}/{len(NAMES)}")
