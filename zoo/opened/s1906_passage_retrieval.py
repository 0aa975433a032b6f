# expect: sick
# symptom: recall climbs for a short while, then everything freezes: the loss stays on a plateau and recall stays low
# axis: schedule
# cause: ReduceLROnPlateau is left in its default mode min but is stepped with recall, which should grow, so every improvement counts as a bad evaluation and the learning rate is cut again and again until nothing moves
# says: (plateau|mode|scheduler|reduce\w*).{0,150}(min|max|recall|accuracy|metric|higher|improv\w*|direction|wrong|maximi\w*)|(recall|metric).{0,150}(plateau|mode|scheduler|lr|learning rate)
# onset_step: 80
# fix: ReduceLROnPlateau(mode="max") or step it with the validation loss
# mended: yes
import os
from types import SimpleNamespace

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"

hp = SimpleNamespace(
    topics=60, vocab=600, q_len=6, p_len=24, dim=48, batch=96, steps=600, lr=2e-3, tau=0.07, eval_every=20
)


class Collection:
    """Questions and passages that share topics but use different words for them."""

    def __init__(self, hp, seed):
        self.hp = hp
        self.g = torch.Generator().manual_seed(seed)
        base = torch.Generator().manual_seed(7)
        self.q_words = torch.randint(hp.vocab, (hp.topics, 10), generator=base)
        self.p_words = torch.randint(hp.vocab, (hp.topics, 20), generator=base)

    def draw(self, table, topics, n):
        # two topics per pair, mixed with noise words
        rows = []
        which = torch.randint(3, (len(topics), n), generator=self.g)
        slot = torch.randint(table.shape[1], (len(topics), n), generator=self.g)
        noise = torch.randint(self.hp.vocab, (len(topics), n), generator=self.g)
        for k in range(2):
            rows.append(table[topics[:, k]].gather(1, slot))
        rows.append(noise)
        return torch.stack(rows, -1).gather(-1, which[..., None]).squeeze(-1)

    def pairs(self, n):
        topics = torch.randint(self.hp.topics, (n, 2), generator=self.g)
        return self.draw(self.q_words, topics, self.hp.q_len), self.draw(self.p_words, topics, self.hp.p_len)


class Tower(nn.Module):
    def __init__(self, hp):
        super().__init__()
        self.emb = nn.Embedding(hp.vocab, hp.dim)
        self.net = nn.Sequential(nn.Linear(hp.dim, 2 * hp.dim), nn.GELU(), nn.Linear(2 * hp.dim, hp.dim))

    def forward(self, ids):
        h = self.emb(ids).mean(1)
        return F.normalize(h + self.net(h), dim=-1)


class DualEncoder(nn.Module):
    def __init__(self, hp):
        super().__init__()
        self.query, self.passage = Tower(hp), Tower(hp)
        self.tau = hp.tau

    def forward(self, q, p):
        logits = self.query(q) @ self.passage(p).T / self.tau
        y = torch.arange(len(q))
        return 0.5 * (F.cross_entropy(logits, y) + F.cross_entropy(logits.T, y))


@torch.no_grad()
def recall_at(model, q, p, k=5):
    top = (model.query(q) @ model.passage(p).T).topk(k, dim=-1).indices
    return (top == torch.arange(len(q))[:, None]).any(-1).float().mean().item()


def build_scheduler(opt):
    kw = {"mode": "max"} if MENDED else {}
    return torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.4, patience=2, min_lr=1e-6, **kw)


def main():
    torch.manual_seed(3)
    data = Collection(hp, seed=5)
    dev_q, dev_p = Collection(hp, seed=6).pairs(400)
    model = DualEncoder(hp)
    opt = torch.optim.Adam(model.parameters(), lr=hp.lr)
    plateau = build_scheduler(opt)
    for step in range(hp.steps):
        loss = model(*data.pairs(hp.batch))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % hp.eval_every == hp.eval_every - 1:
            r = recall_at(model, dev_q, dev_p)
            plateau.step(r)
            print(f"step {step} loss {loss.item():.4f} recall@5 {r:.3f}")


if __name__ == "__main__":
    main()
