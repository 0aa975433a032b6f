# expect: sick
# symptom: after the job is resumed from a checkpoint the loss jumps up at once and needs hundreds of steps to come back; before it was smooth
# axis: harness
# cause: the resume loads only the model weights: the optimizer (Adam moments) and the learning-rate scheduler start afresh, so training goes on with zero moments and the peak learning rate
# says: (optimi[sz]er|adam|moment\w*|schedul\w*|lr|learning[- ]rate).{0,120}(not (re)?(stored|loaded|saved)|n't (re)?(stored|loaded|saved)|never (re)?(stored|loaded|saved)|re-?start|reset|re-?init\w*|fresh|lost|missing|from scratch|peak|start\w* over)|(only|just).{0,30}(model|weights).{0,60}(load|restor|resum|sav)|(load|restor|resum)\w*.{0,30}(only|just).{0,20}(model|weights)|(load|restor|sav)\w*.{0,40}(optimi[sz]er|schedul|adam|moment)
# onset_step: 341
# fix: save and load optimizer.state_dict() and scheduler.state_dict() with the model
# mended: the resume loads the optimizer's and the scheduler's state too
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

CONFIG = dict(
    vocab=32,
    block=32,
    d=48,
    heads=4,
    layers=2,
    batch=16,
    lr=8e-3,
    min_lr=1e-5,
    max_steps=480,
    save_every=340,
    log_every=10,
    seed=11,
)


def make_corpus(n_tokens, vocab, seed):
    """A second order Markov language with a few likely successors a context."""
    rng = np.random.default_rng(seed)
    succ = rng.integers(0, vocab, (vocab, 6, 4))
    probs = np.array([0.6, 0.25, 0.1, 0.05])
    picks = rng.choice(4, size=n_tokens, p=probs)
    out = np.zeros(n_tokens, dtype=np.int64)
    for i in range(2, n_tokens):
        out[i] = succ[out[i - 1], out[i - 2] % 6, picks[i]]
    return torch.from_numpy(out)


class TokenDataset(Dataset):
    def __init__(self, tokens, block):
        self.tokens, self.block = tokens, block

    def __len__(self):
        return (len(self.tokens) - 1) // self.block

    def __getitem__(self, i):
        c = self.tokens[i * self.block : i * self.block + self.block + 1]
        return c[:-1], c[1:]


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, vocab, block, d, heads, layers):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(block, d)
        self.blocks = nn.Sequential(*[Block(d, heads) for _ in range(layers)])
        self.ln = nn.LayerNorm(d)
        self.head = nn.Linear(d, vocab, bias=False)
        for p in (self.tok.weight, self.pos.weight):
            nn.init.normal_(p, std=0.02)

    def forward(self, idx):
        x = self.tok(idx) + self.pos(torch.arange(idx.size(1)))
        return self.head(self.ln(self.blocks(x)))


class Trainer:
    def __init__(self, cfg, dataset, ckpt_path):
        self.cfg, self.ckpt_path = cfg, ckpt_path
        self.model = GPT(cfg["vocab"], cfg["block"], cfg["d"], cfg["heads"], cfg["layers"])
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=cfg["lr"], betas=(0.9, 0.99), weight_decay=0.01)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, cfg["max_steps"], cfg["min_lr"])
        self.dataset = dataset
        self.step = self.epoch = 0
        if os.path.exists(ckpt_path):
            self.load()

    def save(self):
        torch.save(
            {
                "model": self.model.state_dict(),
                "optimizer": self.opt.state_dict(),
                "scheduler": self.sched.state_dict(),
                "step": self.step,
                "epoch": self.epoch,
            },
            self.ckpt_path,
        )

    def load(self):
        ckpt = torch.load(self.ckpt_path)
        self.model.load_state_dict(ckpt["model"])
        if MENDED:
            self.opt.load_state_dict(ckpt["optimizer"])
            self.sched.load_state_dict(ckpt["scheduler"])
        self.step, self.epoch = ckpt["step"], ckpt["epoch"]
        print(f"resumed from {os.path.basename(self.ckpt_path)} at step {self.step}")

    def run(self, until):
        cfg = self.cfg
        while self.step < until:
            self.epoch += 1
            g = torch.Generator().manual_seed(self.epoch)
            loader = DataLoader(self.dataset, batch_size=cfg["batch"], shuffle=True, generator=g, drop_last=True)
            for x, y in loader:
                loss = F.cross_entropy(self.model(x).flatten(0, 1), y.flatten())
                self.opt.zero_grad(set_to_none=True)
                loss.backward()
                self.opt.step()
                self.sched.step()
                if self.step % cfg["log_every"] == 0:
                    print(f"step {self.step:4d} loss {loss.item():.4f}", flush=True)
                self.step += 1
                if self.step >= until:
                    break
        self.save()


def main():
    torch.manual_seed(CONFIG["seed"])
    data = TokenDataset(make_corpus(60_000, CONFIG["vocab"], CONFIG["seed"]), CONFIG["block"])
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "last.pt")
        Trainer(CONFIG, data, path).run(CONFIG["save_every"])
        # the cluster's time slot ends here; the second job goes on
        Trainer(CONFIG, data, path).run(CONFIG["max_steps"])


if __name__ == "__main__":
    main()
