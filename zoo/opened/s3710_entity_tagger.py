# expect: sick
# symptom: the loss falls for the first ten steps, then it is NaN for good and the tagger finds nothing
# axis: precision
# cause: softmax and log run in float16, the probability underflows to 0 and the 1e-8 guard is 0 in fp16 too
# says: (underflow|log\W*(of\W*)?\W*(0|zero)|float16|fp16|half.prec|eps(ilon)?\b|1e-?8|log.?softmax|numerical)
# onset_step: 10
# fix: cast the logits to float32 before the softmax and the log in the focal loss
# mended: the script applies that change if the environment has MENDED=1
"""Named-entity tagger: small pre-norm encoder, focal loss for the rare tags, half-precision autocast."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
torch.manual_seed(5)

VOCAB, TAGS, LENGTH, DIM = 240, 9, 16, 48
STEPS, BATCH, LR, GAMMA = 400, 16, 4e-3, 2.0
SCALE = 22.0  # cosine classifier, as in CosFace
TRIGGERS = torch.arange(10, 18)  # word that opens an entity of type k
NAMES = torch.arange(100, 200)  # words that may be part of an entity


def sample_sentences(n, gen, noise=0.01):
    ids = torch.randint(20, 100, (n, LENGTH), generator=gen)
    tags = torch.zeros(n, LENGTH, dtype=torch.long)
    for i in range(n):
        for _ in range(2):
            p = int(torch.randint(0, LENGTH - 3, (1,), generator=gen))
            k = int(torch.randint(0, 8, (1,), generator=gen))
            ids[i, p] = TRIGGERS[k]
            tags[i, p] = 0
            ids[i, p + 1 : p + 3] = NAMES[torch.randint(0, 100, (2,), generator=gen)]
            tags[i, p + 1 : p + 3] = k + 1
    if noise:  # annotators disagree now and then
        flip = torch.rand(tags.shape, generator=gen) < noise
        tags = torch.where(flip, torch.randint(0, TAGS, tags.shape, generator=gen), tags)
    return ids, tags


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.n2(x))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, DIM)
        self.pos = nn.Parameter(torch.randn(LENGTH, DIM) * 0.5)
        self.layers = nn.ModuleList([Layer(DIM, 4) for _ in range(2)])
        self.norm = nn.LayerNorm(DIM)
        self.prototypes = nn.Parameter(torch.randn(TAGS, DIM))

    def forward(self, ids):
        x = self.tok(ids) + self.pos[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return SCALE * F.linear(F.normalize(self.norm(x), dim=-1), F.normalize(self.prototypes, dim=-1))


def focal_loss(logits, target, weight, gamma=GAMMA, eps=1e-8):
    logits = logits.float() if MENDED else logits
    probs = logits.softmax(dim=-1)
    pt = probs.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    nll = -torch.log(pt + eps)
    return (weight[target] * (1 - pt) ** gamma * nll).mean()


@torch.no_grad()
def macro_f1(model, ids, tags):
    model.eval()
    pred = model(ids).argmax(-1)
    model.train()
    scores = []
    for k in range(1, TAGS):
        tp = ((pred == k) & (tags == k)).sum().item()
        scores.append(2 * tp / max(1, ((pred == k).sum() + (tags == k).sum()).item()))
    return sum(scores) / len(scores)


def main():
    gen = torch.Generator().manual_seed(17)
    ids, tags = sample_sentences(1500, gen)
    val_ids, val_tags = sample_sentences(200, gen, noise=0.0)
    weight = torch.ones(TAGS)
    weight[1:] = 3.0
    model = Tagger()
    opt = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.01)
    warmup = 30
    for step in range(STEPS):
        for group in opt.param_groups:
            group["lr"] = LR * min(1.0, (step + 1) / warmup)
        pick = torch.randint(0, len(ids), (BATCH,), generator=gen)
        with torch.autocast("cpu", dtype=torch.float16):
            logits = model(ids[pick])
            loss = focal_loss(logits, tags[pick], weight)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 20 == 0:
            print(f"step {step:4d} | focal {loss.item():.4f}")
    print(f"final focal {loss.item():.4f} | val macro-F1 {macro_f1(model, val_ids, val_tags):.3f}")


if __name__ == "__main__":
    main()
