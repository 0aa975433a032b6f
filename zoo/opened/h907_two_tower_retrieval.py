# expect: healthy
# symptom: the contrastive loss jumps up in the middle of the run (resembles a loss spike or a bad batch)
# axis: schedule
# cause: healthy: the batch grows from 32 to 256 at step 200, so each query has eight times as many in-batch negatives and the loss has a higher level by about log 8; recall keeps rising
# says: none
# onset_step: none
# fix: none
# mended: none
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
N_DOCS, VOCAB, LENGTH = 3000, 500, 12


class Tower(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.emb = nn.EmbeddingBag(VOCAB, dim, mode="mean")
        self.mlp = nn.Sequential(nn.Linear(dim, 128), nn.ReLU(), nn.Linear(128, dim))

    def forward(self, tokens):
        return F.normalize(self.mlp(self.emb(tokens)), dim=-1)


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.doc = Tower(), Tower()
        self.log_scale = nn.Parameter(torch.tensor(math.log(10.0)))

    def forward(self, q, d):
        logits = self.query(q) @ self.doc(d).T * self.log_scale.exp().clamp(max=50.0)
        labels = torch.arange(len(q))
        return 0.5 * (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels))


def make_queries(docs, synonyms, idx, gen):
    picked = docs[idx].gather(1, torch.rand(len(idx), LENGTH, generator=gen).argsort(1)[:, :7])
    noise = torch.randint(0, VOCAB, picked.shape, generator=gen)
    words = synonyms[picked]
    return torch.where(torch.rand(picked.shape, generator=gen) < 0.1, noise, words)


@torch.no_grad()
def recall_at_1(model, docs, synonyms, gen):
    idx = torch.randperm(N_DOCS, generator=gen)[:500]
    q = model.query(make_queries(docs, synonyms, idx, gen))
    return ((q @ model.doc(docs).T).argmax(1) == idx).float().mean().item()


def main():
    torch.manual_seed(31)
    gen = torch.Generator().manual_seed(31)
    docs = torch.randint(0, VOCAB, (N_DOCS, LENGTH), generator=gen)
    synonyms = torch.randperm(VOCAB, generator=gen)
    model = TwoTower()
    steps = 500
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 3e-3, total_steps=steps, pct_start=0.1)
    for step in range(1, steps + 1):
        batch = 32 if step <= 200 else 256
        idx = torch.randperm(N_DOCS, generator=gen)[:batch]
        loss = model(make_queries(docs, synonyms, idx, gen), docs[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 25 == 0:
            r = recall_at_1(model, docs, synonyms, gen)
            print(
                f"step {step} batch {batch} loss {loss.item():.4f} scale {model.log_scale.exp().item():.1f} recall@1 {r:.3f}"
            )


if __name__ == "__main__":
    main()
