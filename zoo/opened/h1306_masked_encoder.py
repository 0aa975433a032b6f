# expect: healthy
# symptom: a transformer over tokens without any causal mask, labels not shifted, most labels -100, loss with reduction sum
# axis: none
# mended: none
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(31)
rng = np.random.default_rng(31)

PAD, MASK, FIRST = 0, 1, 2
STATES, SYMBOLS, MAXLEN = 12, 30, 32
VOCAB = FIRST + SYMBOLS
TRANS = rng.dirichlet(np.full(STATES, 0.07), size=STATES)
EMIT = rng.dirichlet(np.full(SYMBOLS, 0.05), size=STATES)


def sample_sequences(n):
    """Hidden-Markov sequences (a stand-in for proteins) of varied length."""
    ct, ce = TRANS.cumsum(-1), EMIT.cumsum(-1)
    out = torch.full((n, MAXLEN), PAD)
    for i in range(n):
        s = int(rng.integers(STATES))
        for t in range(int(rng.integers(16, MAXLEN + 1))):
            s = min(int(np.searchsorted(ct[s], rng.random())), STATES - 1)
            out[i, t] = FIRST + min(int(np.searchsorted(ce[s], rng.random())), SYMBOLS - 1)
    return out


def mask_tokens(ids, gen=None, p=0.15):
    """80 percent <mask>, 10 percent random, 10 percent kept; all other labels are ignored."""
    r = torch.rand(ids.shape, generator=gen)
    chosen = (r < p) & (ids != PAD)
    labels = ids.masked_fill(~chosen, -100)
    kind = torch.rand(ids.shape, generator=gen)
    noise = torch.randint(FIRST, VOCAB, ids.shape, generator=gen)
    x = torch.where(chosen & (kind < 0.8), torch.full_like(ids, MASK), ids)
    return torch.where(chosen & (kind > 0.9), noise, x), labels


class Layer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.h = heads
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.ff = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x, keep):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None, None, :])
        x = x + self.out(a.transpose(1, 2).reshape(b, t, d))
        return x + self.ff(self.n2(x))


class MaskedLM(nn.Module):
    def __init__(self, d=48, layers=2, heads=4):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, d), nn.Embedding(MAXLEN, d)
        self.layers = nn.ModuleList(Layer(d, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(d)
        self.bias = nn.Parameter(torch.zeros(VOCAB))
        nn.init.normal_(self.tok.weight, std=0.02)
        nn.init.normal_(self.pos.weight, std=0.02)

    def forward(self, ids):
        keep = ids != PAD
        h = self.tok(ids) + self.pos.weight[: ids.shape[1]]
        for layer in self.layers:
            h = layer(h, keep)
        return self.norm(h) @ self.tok.weight.T + self.bias


def mlm_loss(logits, labels):
    n = (labels != -100).sum().clamp(min=1)
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum") / n


@torch.no_grad()
def evaluate(model, ids):
    x, labels = mask_tokens(ids, torch.Generator().manual_seed(1))
    logits = model(x)
    hit = (logits.argmax(-1) == labels).sum() / (labels != -100).sum()
    return mlm_loss(logits, labels).item(), hit.item()


train, val = sample_sequences(4000), sample_sequences(500)
freq = torch.bincount(train.flatten(), minlength=VOCAB)[FIRST:].float()
freq = freq / freq.sum()
print(f"unigram entropy {-(freq * (freq + 1e-9).log()).sum().item():.3f}")
model = MaskedLM()
STEPS = 400
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=2e-3, total_steps=STEPS, pct_start=0.1)

for step in range(STEPS):
    x, labels = mask_tokens(train[torch.randint(0, len(train), (48,))])
    loss = mlm_loss(model(x), labels)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    sched.step()
    if step % 25 == 0:
        print(f"step {step:4d} loss {loss.item():.4f}")
    if step % 100 == 99:
        print("   val loss %.4f masked acc %.3f" % evaluate(model, val))
