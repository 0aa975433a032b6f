# expect: sick
# symptom: training loss keeps falling nicely across preemptions, but validation loss turns up early and ends far above where a run without preemption lands
# axis: harness
# cause: the checkpoint does not carry the data generator's state, so after every resume the generator is seeded afresh and the same first 30 batches are served again; the model only ever sees that small part of the corpus and memorises it
# says: (same|identical|repeat\w*|replay\w*|first|re-?serv\w*|few|small).{0,80}(batch|data|sampl|window|corpus|sequence)|(generator|rng|seed|sampler|data (order|position|stream)).{0,100}(resum|restor|reset|re-?seed|restart|checkpoint|preempt|saved|again)|(resum|restart|preempt).{0,100}(generator|rng|seed|sampler|same (batch|data))
# onset_step: 30
# fix: save the generator state in the checkpoint and set it back on resume (or fast-forward the data by the resumed step)
# mended: yes
import io
import os
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"


@dataclass
class Config:
    vocab: int = 32
    ctx: int = 32
    dim: int = 96
    layers: int = 2
    heads: int = 4
    batch: int = 16
    lr: float = 2e-3
    total_steps: int = 600
    slot: int = 30  # the queue kills us after this many steps
    seed: int = 11


def make_corpus(cfg, n_tokens):
    g = torch.Generator().manual_seed(1234)
    # second-order chain: every pair of tokens has a handful of likely followers
    table = torch.distributions.Dirichlet(torch.full((cfg.vocab,), 0.08))
    torch.manual_seed(99)
    probs = table.sample((cfg.vocab // 4, cfg.vocab))
    out = [0, 1]
    u = torch.rand(n_tokens, generator=g).tolist()
    cum = probs.cumsum(-1)
    for i in range(n_tokens):
        row = cum[out[-2] % (cfg.vocab // 4), out[-1]]
        nxt = int(torch.searchsorted(row, u[i]))
        out.append(min(nxt, cfg.vocab - 1))
    return torch.tensor(out)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.n2(x))


class LM(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tok = nn.Embedding(cfg.vocab, cfg.dim)
        self.pos = nn.Embedding(cfg.ctx, cfg.dim)
        self.blocks = nn.ModuleList(Block(cfg.dim, cfg.heads) for _ in range(cfg.layers))
        self.norm = nn.LayerNorm(cfg.dim)
        self.head = nn.Linear(cfg.dim, cfg.vocab)

    def forward(self, x):
        h = self.tok(x) + self.pos(torch.arange(x.shape[1]))
        for blk in self.blocks:
            h = blk(h)
        return self.head(self.norm(h))


class Job:
    """One slot on the cluster; picks up where the previous one stopped."""

    def __init__(self, cfg, train, val, ckpt=None):
        self.cfg, self.train_data, self.val_data = cfg, train, val
        torch.manual_seed(cfg.seed)
        self.model = LM(cfg)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr, weight_decay=0.01)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, cfg.total_steps, eta_min=1e-4)
        self.gen = torch.Generator().manual_seed(cfg.seed)
        self.step = 0
        if ckpt is not None:
            self.load(ckpt)

    def load(self, blob):
        blob.seek(0)
        s = torch.load(blob)
        self.model.load_state_dict(s["model"])
        self.opt.load_state_dict(s["opt"])
        self.sched.load_state_dict(s["sched"])
        self.step = s["step"]
        if MENDED:
            self.gen.set_state(s["gen"])

    def save(self):
        blob = io.BytesIO()
        torch.save(
            {
                "model": self.model.state_dict(),
                "opt": self.opt.state_dict(),
                "sched": self.sched.state_dict(),
                "step": self.step,
                "gen": self.gen.get_state(),
            },
            blob,
        )
        return blob

    def batch(self):
        c = self.cfg
        starts = torch.randint(len(self.train_data) - c.ctx - 1, (c.batch,), generator=self.gen)
        rows = torch.stack([self.train_data[s : s + c.ctx + 1] for s in starts.tolist()])
        return rows[:, :-1], rows[:, 1:]

    @torch.no_grad()
    def evaluate(self):
        c = self.cfg
        rows = self.val_data[: 100 * (c.ctx + 1)].view(100, c.ctx + 1)
        self.model.eval()
        loss = F.cross_entropy(self.model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        self.model.train()
        return loss.item()

    def run(self):
        stop = min(self.step + self.cfg.slot, self.cfg.total_steps)
        while self.step < stop:
            x, y = self.batch()
            loss = F.cross_entropy(self.model(x).flatten(0, 1), y.flatten())
            self.opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.opt.step()
            self.sched.step()
            self.step += 1
            if self.step % 15 == 0:
                print(f"step {self.step} loss {loss.item():.4f} lr {self.sched.get_last_lr()[0]:.2e}")
        print(f"step {self.step} val_loss {self.evaluate():.4f}")
        return self.save()


def main():
    cfg = Config()
    corpus = make_corpus(cfg, 124000)
    train, val = corpus[:120000], corpus[120000:]
    ckpt, step = None, 0
    while step < cfg.total_steps:
        job = Job(cfg, train, val, ckpt)
        ckpt = job.run()
        step = job.step


if __name__ == "__main__":
    main()
