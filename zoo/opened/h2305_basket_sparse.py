# expect: healthy
# symptom: the loss shoots up at planned points when the negatives get harder and when a rare very large batch comes (looks like divergence)
# axis: data
"""Next-item recommender: attention pooling over the history, sampled softmax, SparseAdam + Lion.

The number of sampled negatives grows in stages (16, 64, 256), and every 40th
batch is the accumulated nightly dump, sixteen times the usual size.
"""

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(17)

ITEMS, TASTES, HIST = 600, 12, 10
STAGES = [(0, 16), (300, 64), (600, 256)]
STEPS, BATCH, DUMP_EVERY, DUMP = 900, 256, 40, 4096


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            b1, b2 = g["betas"]
            for p in g["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.mul_(1 - g["lr"] * g["weight_decay"])
                p.add_(torch.sign(b1 * m + (1 - b1) * p.grad), alpha=-g["lr"])
                m.mul_(b2).add_(p.grad, alpha=1 - b2)


class Market:
    """Shoppers have one or two tastes; items belong to a taste and have a long-tailed popularity."""

    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)
        fixed = torch.Generator().manual_seed(99)
        self.taste_of = torch.randint(0, TASTES, (ITEMS,), generator=fixed)
        pop = 1.0 / (1 + torch.randperm(ITEMS, generator=fixed).float()) ** 0.7
        onehot = torch.nn.functional.one_hot(self.taste_of, TASTES).t().float()
        self.table = onehot * pop
        self.table = 0.97 * self.table / self.table.sum(1, keepdim=True) + 0.03 * pop / pop.sum()
        self.pop = pop / pop.sum()

    def batch(self, n):
        w = torch.zeros(n, TASTES)
        main = torch.randint(0, TASTES, (n, 1), generator=self.g)
        side = torch.randint(0, TASTES, (n, 1), generator=self.g)
        w.scatter_add_(1, main, torch.full((n, 1), 0.75))
        w.scatter_add_(1, side, torch.full((n, 1), 0.25))
        items = torch.multinomial(w @ self.table, HIST + 1, replacement=True, generator=self.g)
        length = torch.randint(3, HIST + 1, (n, 1), generator=self.g)
        mask = torch.arange(HIST)[None] < length
        return items[:, :HIST], mask, items[:, HIST]

    def negatives(self, k):
        return torch.multinomial(self.pop, k, replacement=True, generator=self.g)


class Recommender(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.item = nn.Embedding(ITEMS, d, sparse=True)
        nn.init.normal_(self.item.weight, std=0.1)
        self.score = nn.Sequential(nn.Linear(d, 32), nn.Tanh(), nn.Linear(32, 1))
        self.mix = nn.Sequential(nn.Linear(d, 64), nn.GELU(), nn.Linear(64, d))

    def user(self, hist, mask):
        e = self.item(hist)
        a = self.score(e).squeeze(-1).masked_fill(~mask, -1e9).softmax(-1)
        h = (a[..., None] * e).sum(1)
        return h + self.mix(h)


def sampled_softmax(model, hist, mask, pos, neg, log_pop):
    u = model.user(hist, mask)
    s_pos = (u * model.item(pos)).sum(-1) - log_pop[pos]
    s_neg = u @ model.item(neg).t() - log_pop[neg]
    s_neg = s_neg.masked_fill(neg[None] == pos[:, None], -1e9)
    logits = torch.cat([s_pos[:, None], s_neg], 1)
    return nn.functional.cross_entropy(logits, torch.zeros(len(pos), dtype=torch.long))


@torch.no_grad()
def hit_rate(model, data, k=20):
    hist, mask, pos = data
    s = model.user(hist, mask) @ model.item.weight.t()
    return (s.topk(k, 1).indices == pos[:, None]).any(1).float().mean().item()


def main():
    market, test = Market(1), Market(2).batch(1500)
    log_pop = market.pop.log()
    model = Recommender()
    dense = list(model.score.parameters()) + list(model.mix.parameters())
    opts = [torch.optim.SparseAdam(model.item.parameters(), lr=8e-3), Lion(dense, lr=4e-4, weight_decay=0.05)]
    print(f"start hit@20 {hit_rate(model, test):.3f}")
    for step in range(1, STEPS + 1):
        k = [n for start, n in STAGES if step > start][-1]
        size = DUMP if step % DUMP_EVERY == 0 else BATCH
        loss = sampled_softmax(model, *market.batch(size), market.negatives(k), log_pop)
        for o in opts:
            o.zero_grad()
        loss.backward()
        for o in opts:
            o.step()
        if step % 20 == 10 or size == DUMP:
            print(f"step {step:4d}  negatives {k:3d}  rows {size:4d}  loss {loss.item():.4f}")
        if step % 150 == 0:
            print(f"     hit@20 {hit_rate(model, test):.3f}", flush=True)


if __name__ == "__main__":
    main()
