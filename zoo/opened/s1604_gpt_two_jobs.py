# expect: sick
# symptom: after the job is resumed from its checkpoint the loss climbs to a higher level within some ten steps and the run ends worse than it stood before the resume
# axis: harness
# cause: the checkpoint holds model and optimizer but not the learning-rate scheduler; on resume the schedule starts again from step 0 (warmup and then the peak learning rate) though training had already decayed it
# says: schedul.{0,100}(not|never|missing|restart|reset|again|from (step )?(0|zero|scratch)|fresh|re-?created|re-?built|without|lost|forg)|(not|never|missing|without|lack|omit|forg).{0,60}schedul|(learning.?rate|\blr\b).{0,60}(jump|restart|reset|back|again|re-?warm|warm-?up again).{0,60}|warm-?up.{0,30}(again|twice|repeat|second time)
# onset_step: 540
# fix: save and load the scheduler's state_dict (or set last_epoch on resume)
# mended: the checkpoint holds the scheduler's state and it is loaded on resume
import io
import math
import os
import time
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

VOCAB, CTX, DIM, HEADS, LAYERS, BATCH = 48, 48, 64, 4, 2, 16
TOTAL, JOB_LIMIT, WARMUP, PEAK = 640, 520, 30, 8e-3


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, DIM))
        return x + self.mlp(self.n2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, DIM), nn.Embedding(CTX, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, VOCAB, bias=False)
        for m in self.modules():
            if isinstance(m, (nn.Linear, nn.Embedding)):
                nn.init.normal_(m.weight, std=0.02)

    def forward(self, x):
        h = self.tok(x) + self.pos(torch.arange(x.shape[1]))
        for b in self.blocks:
            h = b(h)
        return self.head(self.norm(h))


def make_text(n=60000):
    g = torch.Generator().manual_seed(9)
    succ = torch.randint(0, VOCAB, (VOCAB, VOCAB, 3), generator=g).tolist()
    pick = torch.multinomial(torch.tensor([0.8, 0.15, 0.05]), n, replacement=True, generator=g).tolist()
    out, a, b = [], 0, 1
    for i in range(n):
        a, b = b, succ[a % 12][b][pick[i]]
        out.append(b)
    return torch.tensor(out)


def schedule(step):
    if step < WARMUP:
        return (step + 1) / WARMUP
    p = min(1.0, (step - WARMUP) / (TOTAL - WARMUP))
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * p))


class Job:
    def __init__(self, text, blob=None):
        torch.manual_seed(1)
        self.text, self.step = text, 0
        self.model = GPT()
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=PEAK, betas=(0.9, 0.95), weight_decay=0.05)
        self.sched = torch.optim.lr_scheduler.LambdaLR(self.opt, schedule)
        if blob is not None:
            self.load(blob)

    def save(self):
        ck = {"model": self.model.state_dict(), "opt": self.opt.state_dict(), "step": self.step}
        if MENDED:
            ck["sched"] = self.sched.state_dict()
        buf = io.BytesIO()
        torch.save(ck, buf)
        return buf.getvalue()

    def load(self, blob):
        ck = torch.load(io.BytesIO(blob), weights_only=True)
        self.model.load_state_dict(ck["model"])
        self.opt.load_state_dict(ck["opt"])
        self.step = ck["step"]
        if MENDED:
            self.sched.load_state_dict(ck["sched"])
        print(f"resumed from step {self.step}")

    def batch(self):
        g = torch.Generator().manual_seed(1000 + self.step)
        i = torch.randint(0, len(self.text) - CTX - 1, (BATCH,), generator=g)
        w = torch.stack([self.text[j : j + CTX + 1] for j in i.tolist()])
        return w[:, :-1], w[:, 1:]

    def run(self, until):
        t0, run = time.time(), []
        while self.step < until:
            x, y = self.batch()
            loss = F.cross_entropy(self.model(x).flatten(0, 1), y.flatten())
            self.opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.opt.step()
            self.sched.step()
            self.step += 1
            run.append(loss.item())
            if self.step % 10 == 0:
                print(f"step {self.step:4d} loss {sum(run) / len(run):.4f} ({time.time() - t0:.1f}s)", flush=True)
                run = []
        return self.save()


if __name__ == "__main__":
    corpus = make_text()
    blob = Job(corpus).run(JOB_LIMIT)
    Job(corpus, blob).run(TOTAL)
