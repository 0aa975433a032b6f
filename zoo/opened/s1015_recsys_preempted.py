# expect: sick
# symptom: after the job is resumed at step 400 the loss is back at its value of step 0 and all progress is gone
# axis: harness
# cause: the checkpoint was saved from the DataParallel wrapper, so its keys have the prefix "module."; load_state_dict with strict=False into the bare model matches no key and silently loads nothing
# says: prefix|module\.|strict ?= ?False|non-?strict|(missing|unexpected|mismatch\w*|unmatched)[^.\n]{0,30}(key|name)|(key|name)s?[^.\n]{0,40}(do not|don't|not|mis)[ -]?match|(checkpoint|weights|state.?dict|parameters)[^.\n]{0,60}(not (been )?(actually )?(loaded|restored)|never (loaded|restored)|nothing|re-?initiali|silently|fresh|random|reset)|re-?initiali[sz]ed|(did not|didn't|fail\w* to) (load|restore)
# onset_step: 400
# fix: save model.module.state_dict() or strip the prefix, and load with strict=True
# mended: the state of the bare module is saved instead of the wrapper's
import io
import os
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
rng = np.random.default_rng(15)

USERS, ITEMS, CATS, FACTORS = 1500, 900, 12, 10
BATCH, STEPS, STOP = 1024, 800, 400


def make_log(n=240_000):
    u_vec = rng.normal(0, 1, (USERS, FACTORS))
    cat = rng.integers(0, CATS, ITEMS)
    c_vec = rng.normal(0, 1, (CATS, FACTORS))
    i_vec = 0.7 * c_vec[cat] + 0.7 * rng.normal(0, 1, (ITEMS, FACTORS))
    pop = rng.normal(0, 1, ITEMS)
    u = rng.integers(0, USERS, n)
    i = np.minimum((rng.pareto(1.1, n) * 60).astype(int), ITEMS - 1)
    hour = rng.integers(0, 24, n)
    score = 0.9 * (u_vec[u] * i_vec[i]).sum(1) + pop[i] + 0.8 * np.sin(hour / 24 * 6.28 + cat[i]) - 1.2
    y = rng.random(n) < 1 / (1 + np.exp(-score))
    cols = [torch.as_tensor(v) for v in (u, i, cat[i], hour)]
    return torch.stack(cols, 1), torch.as_tensor(y, dtype=torch.float32)


class ClickModel(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.user, self.item = nn.Embedding(USERS, dim), nn.Embedding(ITEMS, dim)
        self.cat, self.hour = nn.Embedding(CATS, 8), nn.Embedding(24, 8)
        for e in (self.user, self.item, self.cat, self.hour):
            nn.init.normal_(e.weight, std=0.1)
        self.bias = nn.Embedding(ITEMS, 1)
        self.mlp = nn.Sequential(nn.Linear(2 * dim + 16, 96), nn.ReLU(), nn.Linear(96, 48), nn.ReLU(), nn.Linear(48, 1))

    def forward(self, x):
        u, i = self.user(x[:, 0]), self.item(x[:, 1])
        deep = self.mlp(torch.cat([u, i, self.cat(x[:, 2]), self.hour(x[:, 3])], 1)).squeeze(1)
        return deep + (u * i).sum(1) + self.bias(x[:, 1]).squeeze(1)


class Job:
    def __init__(self, x, y, blob=None):
        torch.manual_seed(15 if blob is None else 1015)
        self.x, self.y, self.step = x, y, 0
        net = ClickModel()
        saved = torch.load(io.BytesIO(blob)) if blob is not None else None
        if saved:
            net.load_state_dict(saved["model"], strict=False)
            self.step = saved["step"]
        self.model = nn.DataParallel(net)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=3e-3)
        if saved:
            self.opt.load_state_dict(saved["opt"])
            print(f"resumed at step {self.step}")

    def save(self):
        buf = io.BytesIO()
        source = self.model.module if MENDED else self.model
        torch.save({"model": source.state_dict(), "opt": self.opt.state_dict(), "step": self.step}, buf)
        return buf.getvalue()

    def run(self, until):
        while self.step < until:
            idx = torch.randint(0, len(self.x), (BATCH,))
            loss = F.binary_cross_entropy_with_logits(self.model(self.x[idx]), self.y[idx])
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            if self.step % 20 == 0:
                print(f"step {self.step:4d}  bce {loss.item():.4f}")
            self.step += 1

    @torch.no_grad()
    def auc(self, x, y):
        s = self.model(x).numpy()
        rank = np.empty(len(s))
        rank[s.argsort()] = np.arange(1, len(s) + 1)
        pos = y.numpy() > 0.5
        n1, n0 = pos.sum(), (~pos).sum()
        return (rank[pos].sum() - n1 * (n1 + 1) / 2) / (n1 * n0)


def main():
    x, y = make_log()
    cut = len(x) - 20_000
    job = Job(x[:cut], y[:cut])
    job.run(STOP)
    print(f"held-out AUC {job.auc(x[cut:], y[cut:]):.4f}; saving, node goes away")
    blob = job.save()
    del job
    job = Job(x[:cut], y[:cut], blob)
    job.run(STEPS)
    print(f"held-out AUC {job.auc(x[cut:], y[cut:]):.4f}")


if __name__ == "__main__":
    main()
