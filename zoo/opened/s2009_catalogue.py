# expect: sick
# symptom: after the catalogue refresh the next-item loss jumps and never gets back down; new items are hardly ever hit, no error anywhere
# axis: optimizer
# cause: the item embedding is replaced by a bigger one at the catalogue refresh after the optimizer was built, so the optimizer still holds the old tensor and the new item table is never updated
# says: (not|never|isn.t|aren.t|no longer|missing|absent|outside|unknown|left out)\W+(\w+\W+){0,6}(in|from|by|of|to)?\W*(the )?optimi[sz]er|optimi[sz]er\W+(\w+\W+){0,8}(old|stale|previous|original|orphan\w*|detached|replaced|discarded|dead)|(replac|resiz|swap|expand|grow|new embedding|re-?creat)\w*\W+(\w+\W+){0,10}(after|without)\W+(\w+\W+){0,6}optimi[sz]er
# onset_step: 250
# fix: after expanding the table register the new parameter with the optimizer (rebuild it or add_param_group)
# mended: yes
import os

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
rng = np.random.default_rng(21)
torch.manual_seed(21)
torch.set_num_threads(1)

N_OLD, N_NEW, HIST, DIM, GENRES = 300, 200, 12, 48, 20
genre_of = rng.integers(0, GENRES, size=N_OLD + N_NEW)
jump = rng.dirichlet(np.full(GENRES, 0.08), size=GENRES)
pop = rng.pareto(1.6, size=N_OLD + N_NEW) + 0.2


def item_tables(n_items):
    """p(item | genre) for the part of the catalogue that is on sale."""
    t = np.zeros((GENRES, n_items))
    for g in range(GENRES):
        w = pop[:n_items] * (genre_of[:n_items] == g)
        t[g] = np.cumsum(w / w.sum())
    return t


def sessions(n, n_items):
    cum_item, cum_jump = item_tables(n_items), np.cumsum(jump, axis=1)
    g = rng.integers(0, GENRES, size=n)
    out = np.zeros((n, HIST + 1), dtype=np.int64)
    for t in range(HIST + 1):
        out[:, t] = (cum_item[g] < rng.random((n, 1))).sum(1).clip(max=n_items - 1)
        g = (cum_jump[g] < rng.random((n, 1))).sum(1).clip(max=GENRES - 1)
    return torch.from_numpy(out)


class SessionRec(nn.Module):
    def __init__(self, n_items):
        super().__init__()
        self.items = nn.Embedding(n_items, DIM)
        nn.init.normal_(self.items.weight, std=0.1)
        self.gru = nn.GRU(DIM, DIM, batch_first=True)
        self.out = nn.Linear(DIM, DIM)

    def forward(self, hist):
        h, _ = self.gru(self.items(hist))
        return self.out(h) @ self.items.weight.T

    @torch.no_grad()
    def expand(self, n_items):
        old = self.items.weight
        table = nn.Embedding(n_items, DIM)
        nn.init.normal_(table.weight, std=0.1)
        table.weight[: old.shape[0]] = old
        self.items = table


@torch.no_grad()
def report(model, data, tag):
    model.eval()
    logits = model(data[:, :-1])[:, -1]
    y = data[:, -1]
    hit = (logits.topk(10).indices == y[:, None]).any(1).float()
    msg = f"[{tag}] hit@10 {hit.mean():.3f}"
    fresh = y >= N_OLD
    if fresh.any():
        msg += f"  (new items {hit[fresh].mean():.3f}, known items {hit[~fresh].mean():.3f})"
    print(msg)
    model.train()


class Job:
    def __init__(self, steps=700, refresh_at=250, batch=128, lr=3e-3):
        self.steps, self.refresh_at, self.batch, self.lr = steps, refresh_at, batch, lr
        self.model = SessionRec(N_OLD)
        self.train_set, self.val_set = sessions(6000, N_OLD), sessions(1000, N_OLD)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=lr)

    def on_refresh(self):
        n = N_OLD + N_NEW
        self.model.expand(n)
        self.train_set, self.val_set = sessions(6000, n), sessions(1000, n)
        if MENDED:
            self.opt = torch.optim.Adam(self.model.parameters(), lr=self.lr)
        print(f"catalogue refreshed, {n} items on sale")

    def run(self):
        for step in range(self.steps):
            if step == self.refresh_at:
                report(self.model, self.val_set, "before refresh")
                self.on_refresh()
            batch = self.train_set[torch.randint(0, len(self.train_set), (self.batch,))]
            logits = self.model(batch[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
            self.opt.zero_grad()
            self.model.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
            self.opt.step()
            if step % 25 == 0:
                print(f"step {step} loss {loss.item():.4f}")
            if (step + 1) % 150 == 0:
                report(self.model, self.val_set, f"step {step + 1}")
        report(self.model, self.val_set, "final")


if __name__ == "__main__":
    Job().run()
