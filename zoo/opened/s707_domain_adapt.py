# expect: sick
# symptom: adapting the language model to the new domain hardly lowers the loss, although gradients are there and the learning rate is a usual one
# axis: precision
# cause: the weights themselves are cast to bfloat16 and the optimizer updates (lr 2e-5) are smaller than half a bf16 spacing, so they are rounded away
# says: (bf16|bfloat16|half.?precision|low(er)?.?precision|16.?bit|reduced.?precision).{0,100}(round\w*|lost|lose|no.?op|swallow\w*|too small|below|underflow\w*|absorb\w*|not (move|chang)|unchanged|stagnat\w*|stall\w*|master)|(round\w*|lost|no.?op|too small|below|underflow\w*|absorb\w*|master|unchanged|smaller than).{0,100}(bf16|bfloat16|16.?bit|low(er)?.?precision|half.?precision|\bulp\b|spacing|resolution)
# onset_step: 201
# fix: keep the weights (or a master copy) in float32 and use bf16 only for the computation (autocast)
# mended: with MENDED=1 the weights stay float32 and the forward pass runs under bf16 autocast
import copy
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(0)

V, T, D = 64, 16, 64
DEVICE = "cpu"
MENDED = os.environ.get("MENDED") == "1"


class Chain:
    """Second order Markov source; a domain is given by its table."""

    def __init__(self, seed, mix=None, share=0.0):
        g = torch.Generator().manual_seed(seed)
        table = torch.randn(V, V, generator=g) * 2.5
        self.logits = table if mix is None else (1 - share) * table + share * mix.logits
        self.p = self.logits.softmax(-1)

    def batch(self, n, g):
        ids = torch.randint(0, V, (n, 1), generator=g)
        out = [ids]
        for _ in range(T):
            ids = torch.multinomial(self.p[ids[:, 0]], 1, generator=g)
            out.append(ids)
        return torch.cat(out, 1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.o = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.ff = nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (z.view(b, t, 4, -1).transpose(1, 2) for z in self.qkv(self.n1(x)).chunk(3, -1))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(b, t, D))
        return x + self.ff(self.n2(x))


class TinyLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.pos = nn.Embedding(V, D), nn.Embedding(T, D)
        self.layers = nn.Sequential(Layer())
        self.norm, self.head = nn.LayerNorm(D), nn.Linear(D, V)

    def forward(self, ids):
        x = self.emb(ids) + self.pos.weight[: ids.size(1)]
        return self.head(self.norm(self.layers(x)))


def lm_loss(model, ids):
    logits = model(ids[:, :-1])
    return F.cross_entropy(logits.float().reshape(-1, V), ids[:, 1:].reshape(-1))


@torch.no_grad()
def perplexity(model, ids):
    return lm_loss(model, ids).exp().item()


def fit(model, source, steps, lr, g, tag, autocast=False):
    opt = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.0)
    mean = 0.0
    for step in range(1, steps + 1):
        ids = source.batch(12, g).to(DEVICE)
        with torch.autocast(DEVICE, dtype=torch.bfloat16, enabled=autocast):
            loss = lm_loss(model, ids)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        mean += loss.item() / 50
        if step % 50 == 0:
            print(f"{tag} step {step} loss {mean:.4f}", flush=True)
            mean = 0.0


def main():
    g = torch.Generator().manual_seed(42)
    general = Chain(1)
    domain = Chain(2, mix=general, share=0.5)
    base = TinyLM().to(DEVICE)
    fit(base, general, 200, 2e-3, g, "base  ")

    held_out = domain.batch(128, g)
    model = copy.deepcopy(base)
    if not MENDED:
        model = model.to(torch.bfloat16)
    print(f"before: domain perplexity {perplexity(model, held_out):.2f}")
    fit(model, domain, 350, 2e-5, g, "domain", autocast=MENDED)
    print(f"after:  domain perplexity {perplexity(model, held_out):.2f}")


if __name__ == "__main__":
    main()
