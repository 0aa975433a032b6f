# expect: sick
# symptom: loss falls at first, then freezes at a high value though more training should help
# axis: schedule
# cause: the scheduler steps per micro-batch under accumulation, so the lr reaches zero after a quarter of the run
# says: micro.?batch|accum|schedul|learning.?rate|\blr\b|decay\w* (too|four|4)
# onset_step: 15
# fix: step the scheduler once per optimizer step
# mended: the script applies that change if the environment has MENDED=1
import os, random
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
torch.manual_seed(2)
rnd = random.Random(2)
CTX, MICRO, ACCUM, MAX_STEPS, WARMUP = 40, 8, 4, 180, 12

SUBJ = ["the old man", "a red fox", "my sister", "the captain", "one farmer", "a tall clerk"]
VERB = {"saw": "see", "found": "find", "kept": "keep", "lost": "lose", "made": "make"}
OBJ = ["a bridge", "the lantern", "green apples", "some letters", "a wooden boat", "the garden"]
TAIL = ["in the morning", "after the storm", "near the river", "before winter"]


def line():
    if rnd.random() < 0.3:
        a, b = rnd.randint(1, 20), rnd.randint(1, 20)
        return f"{a} plus {b} makes {a + b}. "
    v = rnd.choice(list(VERB))
    return f"{rnd.choice(SUBJ)} {v} {rnd.choice(OBJ)} {rnd.choice(TAIL)}, yes to {VERB[v]}. "


text = "".join(line() for _ in range(3500))
chars = sorted(set(text))
data = torch.tensor([chars.index(c) for c in text])
cut = int(0.93 * len(data))
train_data, val_data = data[:cut], data[cut:]


def get_batch(src, n):
    ix = torch.randint(len(src) - CTX - 1, (n,))
    return torch.stack([src[i : i + CTX] for i in ix]), torch.stack([src[i + 1 : i + CTX + 1] for i in ix])


class MoE(nn.Module):
    def __init__(self, d, experts=4, k=2):
        super().__init__()
        self.k, self.router = k, nn.Linear(d, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)) for _ in range(experts)
        )

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        probs = self.router(flat).softmax(-1)
        w, idx = probs.topk(self.k, -1)
        w = w / w.sum(-1, keepdim=True)
        out = torch.zeros_like(flat)
        for e, f in enumerate(self.experts):
            rows, slot = (idx == e).nonzero(as_tuple=True)
            if len(rows):
                out = out.index_add(0, rows, f(flat[rows]) * w[rows, slot, None])
        load = F.one_hot(idx, probs.shape[-1]).float().sum(1).mean(0) / self.k
        return out.view_as(x), probs.shape[-1] * (load * probs.mean(0)).sum()


class Layer(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h, self.ln1, self.ln2 = h, nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o, self.moe = nn.Linear(d, 3 * d), nn.Linear(d, d), MoE(d)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(B, T, 3, self.h, C // self.h).permute(2, 0, 3, 1, 4)
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C))
        y, aux = self.moe(self.ln2(x))
        return x + y, aux


class MoELM(nn.Module):
    def __init__(self, V, d=48, h=4, depth=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(V, d), nn.Embedding(CTX, d)
        self.layers, self.ln, self.head = (
            nn.ModuleList(Layer(d, h) for _ in range(depth)),
            nn.LayerNorm(d),
            nn.Linear(d, V),
        )

    def forward(self, x):
        h, aux = self.tok(x) + self.pos.weight[: x.shape[1]], 0.0
        for layer in self.layers:
            h, a = layer(h)
            aux = aux + a
        return self.head(self.ln(h)), aux / len(self.layers)


@torch.no_grad()
def val_loss(model, n=8):
    g = [get_batch(val_data, 16) for _ in range(n)]
    return sum(F.cross_entropy(model(x)[0].flatten(0, 1), y.flatten()).item() for x, y in g) / n


model = MoELM(len(chars))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.05)
scheduler = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda s: min(1.0, (s + 1) / WARMUP) * max(0.0, (MAX_STEPS - s) / (MAX_STEPS - WARMUP))
)
for it in range(MAX_STEPS * ACCUM):
    x, y = get_batch(train_data, MICRO)
    logits, aux = model(x)
    lm = F.cross_entropy(logits.flatten(0, 1), y.flatten())
    ((lm + 0.01 * aux) / ACCUM).backward()
    update = (it + 1) % ACCUM == 0
    if update:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    if update or not MENDED:
        scheduler.step()
    if update and (it // ACCUM) % 15 == 0:
        print(f"step {it // ACCUM} loss {lm.item():.4f} aux {aux.item():.3f}", flush=True)
print(f"final train {lm.item():.4f} val {val_loss(model):.4f}")
