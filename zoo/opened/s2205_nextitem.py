# expect: sick
# symptom: training is fine until the run is resumed from its checkpoint; then the loss explodes within a few steps and never recovers properly
# axis: harness
# cause: the checkpoint casts the Adam state to float16, so the tiny second moments (exp_avg_sq) underflow to zero, and after the resume Adam divides by almost nothing and takes enormous steps
# says: (half|fp16|float16|16.?bit|precision|underflow\w*|cast\w*|compress\w*|compact\w*|flush\w*).{0,220}(second.moment|exp_avg_sq|moments?|adam|optimi[sz]er.{0,12}state|variance)|(second.moment|exp_avg_sq|moments?|adam|optimi[sz]er.{0,12}state|variance).{0,220}(half|fp16|float16|16.?bit|precision|underflow)
# onset_step: 301
# fix: save the optimizer state in float32 (cast only the weights, or nothing)
# mended: yes
"""Next-item prediction from browsing sessions (GRU4Rec style).

Runs on a pre-emptible machine: the job is split into two sessions, and the second
one picks up from the compact checkpoint the first has left on disk.
"""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
N_ITEM, N_GROUP, LENGTH = 1200, 24, 14


def browse(n, seed):
    """Shoppers move through groups along a fixed tour and pick popular items in each."""
    world = np.random.default_rng(77)
    group_of = world.integers(0, N_GROUP, N_ITEM)
    members = [np.flatnonzero(group_of == g) for g in range(N_GROUP)]
    follow = world.permutation(N_GROUP)
    rng = np.random.default_rng(seed)
    out = np.zeros((n, LENGTH + 1), np.int64)
    for i in range(n):
        g = rng.integers(N_GROUP)
        for t in range(LENGTH + 1):
            m = members[g]
            rank = min(int(rng.exponential(len(m) / 6)), len(m) - 1)
            out[i, t] = m[rank]
            if rng.random() < 0.85:
                g = follow[g]
            elif rng.random() < 0.3:
                g = rng.integers(N_GROUP)
    return torch.from_numpy(out)


class NextItem(nn.Module):
    def __init__(self, dim=48, hidden=80):
        super().__init__()
        self.item = nn.Embedding(N_ITEM, dim)
        nn.init.normal_(self.item.weight, std=0.3)
        self.drop = nn.Dropout(0.1)
        self.gru = nn.GRU(dim, hidden, batch_first=True)
        self.score = nn.Linear(hidden, N_ITEM)

    def forward(self, seq):
        h, _ = self.gru(self.drop(self.item(seq)))
        return self.score(h)


def slim(obj, dtype=torch.float16):
    """Cast every floating tensor in a nested state to save disk space."""
    if torch.is_tensor(obj):
        return obj.to(dtype) if obj.is_floating_point() and obj.numel() > 1 else obj
    if isinstance(obj, dict):
        return {k: slim(v, dtype) for k, v in obj.items()}
    if isinstance(obj, (list, tuple)):
        return type(obj)(slim(v, dtype) for v in obj)
    return obj


def save(path, step, model, opt, sched):
    opt_state = opt.state_dict()
    if os.environ.get("MENDED") != "1":
        opt_state = slim(opt_state)
    torch.save({"step": step, "model": slim(model.state_dict()), "opt": opt_state, "sched": sched.state_dict()}, path)


def loss_of(model, seq):
    logits = model(seq[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1), seq[:, 1:].flatten()), logits


@torch.no_grad()
def validate(model, seq):
    model.eval()
    loss, logits = loss_of(model, seq)
    top = logits.topk(20, dim=-1).indices
    hit = (top == seq[:, 1:, None]).any(-1).float().mean()
    model.train()
    return loss.item(), hit.item()


def session(first, last, total, path, train, valid):
    torch.manual_seed(100 + first)
    model = NextItem()
    opt = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=1e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=total, eta_min=2e-4)
    if path.exists():
        ck = torch.load(path)
        model.load_state_dict(ck["model"])
        opt.load_state_dict(ck["opt"])
        sched.load_state_dict(ck["sched"])
        print(f"resumed from step {ck['step']} ({path.stat().st_size / 1024:.0f} KiB)")
    for step in range(first, last + 1):
        batch = train[torch.randint(len(train), (32,))]
        loss, _ = loss_of(model, batch)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 20 == 0 or step - first < 3:
            print(f"step {step} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.2e}")
        if step % 100 == 0:
            vl, hit = validate(model, valid)
            print(f"step {step} valid loss {vl:.4f} hit@20 {hit:.3f}")
    save(path, last, model, opt, sched)


def main():
    t0 = time.time()
    train, valid = browse(8000, 0), browse(300, 1)
    with tempfile.TemporaryDirectory() as tmp:
        path = Path(tmp) / "last.pt"
        session(1, 300, 600, path, train, valid)
        session(301, 600, 600, path, train, valid)
    print(f"total time {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
