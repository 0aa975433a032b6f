# expect: sick
# symptom: after the restart from the saved checkpoint the loss jumps back up to its starting value, and the final hit rate is far below that of an uninterrupted run
# axis: harness
# cause: the checkpoint was saved from the DataParallel wrapper so its keys carry a "module." prefix, and load_state_dict with strict=False on the bare model silently matches none of them, so the resumed run restarts from random weights
# says: (module\.|strict\s*=\s*false|prefix|\b(key|name)s?\b.{0,40}match|(weights|model.?s? (parameters|state_?dict)).{0,60}(not|never|none|nothing|fail\w*|isn.t|aren.t|silently).{0,30}(load|restor|match|appl)|load\w* (nothing|none|no (weights?|keys?|parameters?))|(re-?start|resum)\w*.{0,60}(random|fresh|untrained|re-?initiali[sz]ed)\w* (model|weights|parameters|net)|nothing is (loaded|restored))
# onset_step: 301
# fix: strip the "module." prefix from the keys (or save model.module.state_dict()) before loading
# mended: yes
"""Self-attentive next-item recommendation on simulated sessions.

The job runs in two queue slots; slot two picks the checkpoint of slot one up.
"""

import json
import math
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)

N_ITEMS = 300
MAX_LEN = 20
TOTAL_STEPS = 480
SLOT_STEPS = 300


def simulate_sessions(n, seed):
    world = np.random.default_rng(99)
    follow = world.integers(1, N_ITEMS + 1, size=(N_ITEMS + 1, 3))
    rng = np.random.default_rng(seed)
    out = np.zeros((n, MAX_LEN + 1), dtype=np.int64)
    for s in range(n):
        cur = int(rng.integers(1, N_ITEMS + 1))
        for t in range(MAX_LEN + 1):
            out[s, t] = cur
            if rng.random() < 0.9:
                cur = int(follow[cur, rng.choice(3, p=[0.7, 0.2, 0.1])])
            else:
                cur = int(rng.integers(1, N_ITEMS + 1))
        cut = int(rng.integers(0, 8))
        if cut:
            out[s] = np.concatenate([np.zeros(cut, dtype=np.int64), out[s, : MAX_LEN + 1 - cut]])
    return torch.from_numpy(out)


class SessionTransformer(nn.Module):
    def __init__(self, d=64, heads=2, layers=2):
        super().__init__()
        self.item = nn.Embedding(N_ITEMS + 1, d, padding_idx=0)
        self.pos = nn.Embedding(MAX_LEN, d)
        layer = nn.TransformerEncoderLayer(d, heads, 2 * d, dropout=0.1, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(d), enable_nested_tensor=False)
        self.out = nn.Linear(d, N_ITEMS + 1)
        causal = torch.triu(torch.full((MAX_LEN, MAX_LEN), float("-inf")), 1)
        self.register_buffer("causal", causal, persistent=False)

    def forward(self, seq):
        h = self.item(seq) + self.pos.weight[: seq.size(1)]
        return self.out(self.enc(h, mask=self.causal))


class Trainer:
    def __init__(self, model, data, valid):
        self.model, self.data, self.valid = model, data, valid
        self.opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
        self.sched = torch.optim.lr_scheduler.LambdaLR(self.opt, self.rate)
        self.criterion = nn.CrossEntropyLoss(ignore_index=0)
        self.step = 0

    @staticmethod
    def rate(step):
        if step < 40:
            return (step + 1) / 40
        return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (step - 40) / (TOTAL_STEPS - 40)))

    def fit(self, until):
        g = torch.Generator().manual_seed(self.step + 1)
        self.model.train()
        acc = 0.0
        while self.step < until:
            rows = self.data[torch.randint(len(self.data), (64,), generator=g)]
            logits = self.model(rows[:, :-1])
            loss = self.criterion(logits.flatten(0, 1), rows[:, 1:].flatten())
            self.opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.opt.step()
            self.sched.step()
            self.step += 1
            acc += loss.item()
            if self.step % 20 == 0:
                print(
                    json.dumps(
                        {"step": self.step, "loss": round(acc / 20, 4), "lr": round(self.sched.get_last_lr()[0], 6)}
                    ),
                    flush=True,
                )
                acc = 0.0

    def hit_rate(self, k=3):
        self.model.eval()
        with torch.no_grad():
            top = self.model(self.valid[:, :-1])[:, -1].topk(k).indices
        return (top == self.valid[:, -1:]).any(1).float().mean().item()

    def save(self, path):
        torch.save(
            {
                "model": self.model.state_dict(),
                "opt": self.opt.state_dict(),
                "sched": self.sched.state_dict(),
                "step": self.step,
            },
            path,
        )

    def load(self, path):
        ckpt = torch.load(path, map_location="cpu")
        weights = ckpt["model"]
        if os.environ.get("MENDED") == "1":
            weights = {k.removeprefix("module."): v for k, v in weights.items()}
        self.model.load_state_dict(weights, strict=False)
        self.opt.load_state_dict(ckpt["opt"])
        self.sched.load_state_dict(ckpt["sched"])
        self.step = ckpt["step"]
        print(f"resumed from {os.path.basename(path)} at step {self.step}")


def main():
    train, valid = simulate_sessions(6000, 1), simulate_sessions(600, 2)
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "last.pt")
        torch.manual_seed(0)
        first = Trainer(nn.DataParallel(SessionTransformer()), train, valid)
        first.fit(SLOT_STEPS)
        print(f"slot 1 finished, HR@3 {first.hit_rate():.3f}")
        first.save(path)

        torch.manual_seed(1)
        second = Trainer(SessionTransformer(), train, valid)
        second.load(path)
        second.fit(TOTAL_STEPS)
        print(f"slot 2 finished, HR@3 {second.hit_rate():.3f}")


if __name__ == "__main__":
    main()
