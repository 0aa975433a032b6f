# expect: sick
# symptom: language-model loss flattens at a plausible but too high value; held-out next-event perplexity is terrible and generated sessions are nonsense
# axis: data
# cause: the labels are already shifted by one position in get_batch, but GPT2LMHeadModel shifts the labels internally again, so the model is trained to predict the token two positions ahead
# says: (shift\w*\b.{0,120}\b(twice|again|double|internal\w*|itself|already|second time))|((twice|double|doubly|two times|again|already)[\s-]*(being )?shift)|(two (tokens?|positions?|steps?) ahead)|(off[- ]by[- ]one.{0,60}(label|target))|((label|target)s?.{0,60}off[- ]by[- ]one)|(skip\w* (one|a) token)
# onset_step: 1
# fix: pass labels equal to input_ids and let the model do the shift (y = x)
# mended: yes
"""Next-event model for product telemetry.

Sessions are strings of UI events.  They are written one after the other into a
flat token stream, and a small GPT-2 is trained on random crops of the stream.
At the end a few sessions are sampled and held-out perplexity is reported.
"""

import math
import os
import time

import numpy as np
import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel

torch.set_num_threads(1)
torch.manual_seed(1337)
rng = np.random.default_rng(1337)

# ----------------------------------------------------------------- config
block_size = 48
batch_size = 20
n_layer, n_head, n_embd = 2, 4, 96
max_iters = 340
warmup_iters = 30
learning_rate = 2e-3
min_lr = 2e-4
eval_interval = 85
log_interval = 20

# ----------------------------------------------------------------- corpus
PAGES = ["home", "search", "item", "cart", "pay", "help", "profile", "wish"]
ACTS = ["open", "scroll", "click", "hover", "back", "type"]
events = ["<start>"] + [f"{p}:{a}" for p in PAGES for a in ACTS]
stoi = {e: i for i, e in enumerate(events)}
vocab_size = len(events)


def build_transitions():
    """Each event has three plausible successors, some more usual than others."""
    table = {}
    for i in range(vocab_size):
        nxt = rng.choice(np.arange(1, vocab_size), size=3, replace=False)
        table[i] = (nxt, np.array([0.72, 0.2, 0.08]))
    return table


transitions = build_transitions()


def sample_session():
    out = [0]
    length = int(rng.integers(10, 30))
    for _ in range(length):
        nxt, p = transitions[out[-1]]
        out.append(int(rng.choice(nxt, p=p)))
    return out


stream = []
for _ in range(2500):
    stream.extend(sample_session())
data = torch.tensor(stream, dtype=torch.long)
n = int(0.9 * len(data))
train_data, val_data = data[:n], data[n:]
print(f"vocab {vocab_size}  train tokens {len(train_data)}  val tokens {len(val_data)}")


def get_batch(split):
    d = train_data if split == "train" else val_data
    ix = torch.randint(len(d) - block_size - 1, (batch_size,))
    x = torch.stack([d[i : i + block_size] for i in ix])
    y = torch.stack([d[i + 1 : i + 1 + block_size] for i in ix])
    if os.environ.get("MENDED") == "1":
        y = x
    return x, y


# ----------------------------------------------------------------- model
config = GPT2Config(
    vocab_size=vocab_size,
    n_positions=block_size,
    n_embd=n_embd,
    n_layer=n_layer,
    n_head=n_head,
    resid_pdrop=0.05,
    embd_pdrop=0.05,
    attn_pdrop=0.0,
    bos_token_id=0,
    eos_token_id=0,
)
model = GPT2LMHeadModel(config)
print(f"parameters: {sum(p.numel() for p in model.parameters()) / 1e3:.0f}k")

decay = [p for p in model.parameters() if p.dim() >= 2]
no_decay = [p for p in model.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.05}, {"params": no_decay, "weight_decay": 0.0}],
    lr=learning_rate,
    betas=(0.9, 0.98),
)


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / warmup_iters
    ratio = (it - warmup_iters) / (max_iters - warmup_iters)
    return min_lr + 0.5 * (1 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


@torch.no_grad()
def heldout_perplexity(batches=8):
    model.eval()
    total = 0.0
    for _ in range(batches):
        ix = torch.randint(len(val_data) - block_size, (batch_size,))
        seq = torch.stack([val_data[i : i + block_size] for i in ix])
        logits = model(input_ids=seq).logits
        total += F.cross_entropy(logits[:, :-1].flatten(0, 1), seq[:, 1:].flatten()).item()
    model.train()
    return math.exp(min(total / batches, 20.0))


@torch.no_grad()
def generate(k=16, length=24):
    model.eval()
    ids = torch.zeros(k, 1, dtype=torch.long)
    for _ in range(length):
        p = F.softmax(model(input_ids=ids).logits[:, -1], dim=-1)
        ids = torch.cat([ids, torch.multinomial(p, 1)], dim=1)
    model.train()
    return ids


# ----------------------------------------------------------------- train
model.train()
t0 = time.time()
running = None
for it in range(max_iters):
    for g in optimizer.param_groups:
        g["lr"] = get_lr(it)
    xb, yb = get_batch("train")
    loss = model(input_ids=xb, labels=yb).loss
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    running = loss.item() if running is None else 0.9 * running + 0.1 * loss.item()
    if it % log_interval == 0:
        print(f"iter {it:4d} | loss {loss.item():.4f} | avg {running:.4f} | lr {get_lr(it):.2e}")
    if (it + 1) % eval_interval == 0:
        print(f"  val ppl (next event) {heldout_perplexity():.2f}")

sessions = generate()
ok = tot = 0
for s in sessions.tolist():
    for a, b in zip(s[:-1], s[1:]):
        tot += 1
        ok += int(b == 0 or b in transitions[a][0])
print("sample:", " ".join(events[i] for i in sessions[0].tolist()[:12]))
print(f"plausible transitions in samples: {100 * ok / tot:.1f}%")
print(f"finished in {time.time() - t0:.1f}s")
