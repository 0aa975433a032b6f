# expect: sick
# symptom: the loss falls for more than a hundred steps, turns, and climbs above that of an untrained model
# axis: schedule
# cause: the schedule takes the maximum of warm-up and decay instead of the minimum, so the learning rate rises for ever
# says: (learning.?rate|\blr\b|schedul\w*|warm-?\s?up|ramp).{0,100}(ris|grow|climb|increas|never (end|stop|decay|cap)|not (capped|end|stop|decay)|unbounded|without (end|bound|limit|a cap)|for ?ever|keeps|too (high|large)|max\w* (instead|rather)|ramp)|(max).{0,30}(instead|rather).{0,20}min|(rising|growing|increasing|climbing|unbounded|uncapped|too (high|large)).{0,30}(learning.?rate|\blr\b|warm-?\s?up|schedule)
# onset_step: 21
# fix: take the minimum of the two branches
# mended: MENDED=1
import os
import random

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(31)
WARMUP = 20


def corpus(n=3000):
    r = random.Random(31)
    food = ["onions", "carrots", "lentils", "rice", "mushrooms", "cream", "butter", "leeks", "beans", "barley"]
    how = ["slowly", "for five minutes", "until golden", "in a large pan", "with a lid on"]
    do = ["fry", "boil", "stir", "chop", "rinse", "roast", "season"]
    return " ".join(f"{r.choice(do)} the {r.choice(food)} and {r.choice(food)} {r.choice(how)}." for _ in range(n))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.n1, self.n2, self.heads = nn.LayerNorm(dim), nn.LayerNorm(dim), heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d)
        x = x + self.proj(a)
        return x + self.mlp(self.n2(x))


class TinyGPT(nn.Module):
    def __init__(self, vocab, dim=48, block=32):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, dim), nn.Embedding(block, dim)
        self.blocks = nn.Sequential(Block(dim, 4), Block(dim, 4))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocab, bias=False)

    def forward(self, x):
        h = self.tok(x) + self.pos(torch.arange(x.shape[1]))
        return self.head(self.norm(self.blocks(h)))


def rate(step):
    s = step + 1
    up, down = s / WARMUP, (WARMUP / s) ** 0.5
    return min(up, down) if os.environ.get("MENDED") == "1" else max(up, down)


def main():
    text = corpus()
    chars = sorted(set(text))
    data = torch.tensor([chars.index(c) for c in text])
    model = TinyGPT(len(chars))
    opt = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9, nesterov=True, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, rate)
    for step in range(1, 351):
        at = torch.randint(0, len(data) - 33, (16,)).unsqueeze(1) + torch.arange(33)
        chunk = data[at]
        loss = F.cross_entropy(model(chunk[:, :-1]).flatten(0, 1), chunk[:, 1:].flatten())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 25 == 0:
            print(f"iter {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
