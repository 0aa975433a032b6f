# expect: sick
# symptom: loss had come down nicely; right after the job was preempted and restarted from its checkpoint at step 460 it jumps to a much higher level and needs a long time to come back
# axis: harness
# cause: the checkpoint holds the model weights only; on resume AdamW starts with empty moments and the cosine schedule starts over at the peak learning rate
# says: (optimi[sz]er|adam\w*|schedul\w*|learning.rate|\blr\b|moment\w*)[^.]{0,120}(not (saved|restored|loaded)|fresh|empty|lost|missing|reset|restart\w*|start\w* over|re-?initiali[sz]ed|from (zero|scratch))|(resum\w*|checkpoint\w*|restart\w*)[^.]{0,120}(optimi[sz]er|schedul\w*|moment\w*|learning.rate|\blr\b)
# onset_step: 460
# fix: save and load optimizer.state_dict() and scheduler.state_dict() along with the model
# mended: the checkpoint also carries optimizer and scheduler state, and both are loaded on resume
import math
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

SIZE, PATCH, CLASSES = 16, 4, 12
STEPS, PREEMPT_AT, BATCH = 600, 460, 48


def glyph_bank(rng):
    bank = []
    for _ in range(CLASSES):
        pts = rng.uniform(3, 12, size=(5, 2))
        img = np.zeros((SIZE, SIZE), dtype=np.float32)
        yy, xx = np.mgrid[0:SIZE, 0:SIZE]
        for a, b in zip(pts[:-1], pts[1:]):
            for w in np.linspace(0, 1, 12):
                p = a * (1 - w) + b * w
                img += np.exp(-((yy - p[0]) ** 2 + (xx - p[1]) ** 2) / 1.2)
        bank.append(np.clip(img, 0, 1))
    return np.stack(bank)


def make_split(bank, n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, n)
    x = bank[y].copy()
    for i in range(n):
        x[i] = np.roll(x[i], rng.integers(-2, 3, 2), axis=(0, 1))
    x += rng.normal(0, 0.22, x.shape)
    return torch.tensor(x, dtype=torch.float32).unsqueeze(1), torch.tensor(y)


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        self.heads = heads

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)
        x = x + self.proj(a)
        return x + self.mlp(self.n2(x))


class ViT(nn.Module):
    def __init__(self, d=48, depth=3, heads=4):
        super().__init__()
        n = (SIZE // PATCH) ** 2
        self.embed = nn.Conv2d(1, d, PATCH, PATCH)
        self.cls = nn.Parameter(torch.zeros(1, 1, d))
        self.pos = nn.Parameter(torch.randn(1, n + 1, d) * 0.02)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, CLASSES)

    def forward(self, x):
        x = self.embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
        for blk in self.blocks:
            x = blk(x)
        return self.head(self.norm(x[:, 0]))


class Trainer:
    def __init__(self, data, val, ckpt_path):
        self.model = ViT()
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=3e-3, weight_decay=0.05)
        self.sched = torch.optim.lr_scheduler.LambdaLR(self.opt, self.lr_at)
        self.x, self.y = data
        self.val = val
        self.path = ckpt_path
        self.step = 0

    @staticmethod
    def lr_at(s):
        warm = 5
        if s < warm:
            return (s + 1) / warm
        return 0.005 + 0.995 * 0.5 * (1 + math.cos(math.pi * min(1.0, (s - warm) / (STEPS - warm))))

    def save(self):
        state = {"model": self.model.state_dict(), "step": self.step}
        if MENDED:
            state["optimizer"] = self.opt.state_dict()
            state["scheduler"] = self.sched.state_dict()
        torch.save(state, self.path)

    def load(self):
        state = torch.load(self.path)
        self.model.load_state_dict(state["model"])
        self.step = state["step"]
        if MENDED:
            self.opt.load_state_dict(state["optimizer"])
            self.sched.load_state_dict(state["scheduler"])

    def batch(self):
        g = torch.Generator().manual_seed(1000 + self.step)
        i = torch.randint(0, len(self.x), (BATCH,), generator=g)
        return self.x[i], self.y[i]

    def fit(self, until):
        self.model.train()
        while self.step < until:
            x, y = self.batch()
            loss = F.cross_entropy(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.opt.step()
            self.sched.step()
            self.step += 1
            if self.step % 20 == 0 or self.step - PREEMPT_AT in (1, 5, 10):
                print(f"step {self.step:4d} loss {loss.item():.4f}", flush=True)

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        out = self.model(self.val[0])
        return F.cross_entropy(out, self.val[1]).item(), (out.argmax(1) == self.val[1]).float().mean().item()


def main():
    torch.manual_seed(7)
    bank = glyph_bank(np.random.default_rng(3))
    train, val = make_split(bank, 12000, 1), make_split(bank, 1000, 2)
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "last.pt")
        job = Trainer(train, val, path)
        job.fit(PREEMPT_AT)
        job.save()
        print(f"time limit reached, saved at step {job.step}, val {job.evaluate()}")

        job = Trainer(train, val, path)
        job.load()
        print(f"resumed at step {job.step}")
        job.fit(STEPS)
        print("val loss %.4f acc %.3f" % job.evaluate())


if __name__ == "__main__":
    main()
