# expect: healthy
# symptom: the forward runs under no_grad and the tensor on which backward is called is not the loss, is negative at times and does not fall (resembles a detached graph)
# axis: loss
# cause: healthy: cached-gradient contrastive training; embeddings are made without graph, the loss's gradients to them are cached and then put through the encoders chunk by chunk by a surrogate sum(embedding * gradient), which is exact
# says: none
# onset_step: none
# fix: none
# mended: none
import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(77)
random.seed(77)

QUERY_VOCAB, ITEM_VOCAB, CONCEPTS = 800, 900, 150
Q_WORDS = [random.sample(range(1, QUERY_VOCAB), 6) for _ in range(CONCEPTS)]
I_WORDS = [random.sample(range(1, ITEM_VOCAB), 8) for _ in range(CONCEPTS)]


def catalogue(n):
    queries, items = torch.zeros(n, 6, dtype=torch.long), torch.zeros(n, 16, dtype=torch.long)
    for i in range(n):
        concepts = random.sample(range(CONCEPTS), 3)
        q = [random.choice(Q_WORDS[c]) for c in concepts for _ in range(random.randint(1, 2))]
        t = [random.choice(I_WORDS[c]) for c in concepts for _ in range(4)]
        t += [random.randrange(1, ITEM_VOCAB) for _ in range(random.randint(0, 4))]
        queries[i, : len(q)], items[i, : len(t)] = torch.tensor(q), torch.tensor(t)
    return queries, items


class Tower(nn.Module):
    def __init__(self, vocab, dim=64, out=48):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim, padding_idx=0)
        self.mlp = nn.Sequential(nn.Linear(dim, 128), nn.GELU(), nn.Linear(128, out))

    def forward(self, ids):
        mask = (ids != 0).unsqueeze(-1).float()
        pooled = (self.emb(ids) * mask).sum(1) / mask.sum(1).clamp(min=1)
        return F.normalize(self.mlp(pooled), dim=-1)


class TwoTowers(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.item = Tower(QUERY_VOCAB), Tower(ITEM_VOCAB)
        self.log_scale = nn.Parameter(torch.tensor(math.log(12.0)))

    def contrast(self, q, t):
        logits = self.log_scale.clamp(max=math.log(60.0)).exp() * q @ t.T
        target = torch.arange(len(q))
        return 0.5 * (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target))


class CachedStep:
    """A large contrastive batch with the activation memory of a small one."""

    def __init__(self, model, optimizer, chunk):
        self.model, self.optimizer, self.chunk = model, optimizer, chunk

    def __call__(self, queries, items):
        with torch.no_grad():
            q = torch.cat([self.model.query(x) for x in queries.split(self.chunk)])
            t = torch.cat([self.model.item(x) for x in items.split(self.chunk)])
        q, t = q.requires_grad_(), t.requires_grad_()
        self.optimizer.zero_grad()
        loss = self.model.contrast(q, t)
        loss.backward()
        surrogate = 0.0
        for tower, ids, grads in ((self.model.query, queries, q.grad), (self.model.item, items, t.grad)):
            for x, g in zip(ids.split(self.chunk), grads.split(self.chunk)):
                part = (tower(x) * g).sum()
                part.backward()
                surrogate += part.item()
        self.optimizer.step()
        return loss.item(), surrogate


@torch.no_grad()
def recall(model, queries, items, k):
    scores = model.query(queries) @ model.item(items).T
    top = scores.topk(k, dim=1).indices
    return (top == torch.arange(len(queries)).unsqueeze(1)).any(1).float().mean().item()


def main():
    queries, items = catalogue(12000)
    test = catalogue(400)
    model = TwoTowers()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    step_fn = CachedStep(model, optimizer, chunk=32)
    order = torch.randperm(len(queries))
    cursor = 0
    for step in range(1, 401):
        if cursor + 256 > len(order):
            order, cursor = torch.randperm(len(queries)), 0
        pick = order[cursor : cursor + 256]
        cursor += 256
        loss, surrogate = step_fn(queries[pick], items[pick])
        if step % 25 == 0:
            print(
                f"step {step} contrastive {loss:.4f} surrogate {surrogate:+.4f} "
                f"scale {model.log_scale.exp().item():.1f}",
                flush=True,
            )
        if step % 100 == 0:
            print(f"   recall@1 {recall(model, *test, 1):.3f} recall@10 {recall(model, *test, 10):.3f}", flush=True)


if __name__ == "__main__":
    main()
