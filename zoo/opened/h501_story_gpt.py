# expect: healthy
# symptom: the loss jumps up twice in the run and the step time grows (resembles a loss spike from bad data)
# axis: data
# cause: healthy: a planned curriculum lengthens the context at steps 231 and 461, the new positions are unseen at first, so the loss rises for a moment and then falls again, while the accuracy at full context doubles
# says: none
# onset_step: none
# fix: none
# mended: none
import argparse
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

NAMES = 20
PLACES = 16
VOCAB = 2 + 1 + NAMES + PLACES  # BOS, DOT, WENT, names, places
BOS, DOT, WENT = 0, 1, 2


def story(length, rng):
    """People move about; a person always moves on from the last place to the next one of the own round trip."""
    where = {}
    ids = [BOS]
    cast = rng.sample(range(NAMES), 3)
    while len(ids) < length + 1:
        who = rng.choice(cast)
        if who in where:
            where[who] = (where[who] * 3 + who) % PLACES
        else:
            where[who] = (who * 5 + 1) % PLACES
        ids += [3 + who, WENT, 3 + NAMES + where[who], DOT]
    return ids[: length + 1]


def stage_of(step, args):
    for upto, length, batch in ((args.steps // 3, 16, 24), (2 * args.steps // 3, 40, 12), (args.steps, 80, 10)):
        if step <= upto:
            return length, batch
    raise ValueError(step)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.att, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.fc, self.proj = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.att(self.n1(x)).chunk(3, -1)
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in (q, k, v))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        return x + self.proj(F.gelu(self.fc(self.n2(x))))


class StoryGPT(nn.Module):
    def __init__(self, dim=64, layers=2, heads=4, context=80):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, dim), nn.Embedding(context, dim)
        self.blocks = nn.Sequential(*[Block(dim, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(dim)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02 if "out" in name or "proj" in name else 0.06)

    def forward(self, ids):
        x = self.tok(ids) + self.pos.weight[: ids.size(1)]
        return self.norm(self.blocks(x)) @ self.tok.weight.T


@torch.no_grad()
def place_accuracy(model, rng, length=80, n=32):
    ids = torch.tensor([story(length, rng) for _ in range(n)])
    pred = model(ids[:, :-1]).argmax(-1)
    target = ids[:, 1:]
    places = target >= 3 + NAMES
    return (pred == target)[places].float().mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=690)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--seed", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    rng, eval_rng = random.Random(args.seed), random.Random(args.seed + 1)
    model = StoryGPT()
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, args.lr, total_steps=args.steps, pct_start=0.08)
    seen, t0 = None, time.time()
    for step in range(1, args.steps + 1):
        length, batch = stage_of(step, args)
        if (length, batch) != seen:
            seen = (length, batch)
            print(f"-- context {length}, batch {batch}")
        ids = torch.tensor([story(length, rng) for _ in range(batch)])
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 20 == 0 or step - 1 in (args.steps // 3, 2 * args.steps // 3):
            print(f"step {step} loss {loss.item():.4f} grad norm {norm:.2f} {time.time() - t0:.1f}s", flush=True)
        if step % 100 == 0:
            print(f"   place accuracy at full context {place_accuracy(model, eval_rng):.3f}", flush=True)


if __name__ == "__main__":
    main()
