# expect: sick
# symptom: the recurrent language model learns well, then the loss blows up to 10 to 30 (its start was 3.7), jumps about and never comes back, although gradient clipping is in the code
# axis: optimizer
# cause: clip_grad_norm_ is called right after zero_grad and before backward, so it clips empty gradients and the real ones are never clipped; with the large SGD learning rate the recurrent net's gradients explode
# says: clip\w*.{0,100}(before|prior|order|too early|wrong place|misplaced|no effect|never|not (take|have|applied|act)|ineffective|empty|stale|zero(ed)? grad|(should|must) (come|be|go|happen).{0,30}after)|(before|prior to).{0,40}backward.{0,60}clip|unclipped|not (actually )?(being )?clipped|backward.{0,40}after.{0,40}clip|clip\w*.{0,40}between.{0,30}backward
# onset_step: 230
# fix: call clip_grad_norm_ between loss.backward() and optimizer.step()
# mended: the clipping call comes after backward
import os
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)


@dataclass
class Config:
    vocab: int = 40
    emb: int = 32
    hidden: int = 96
    bptt: int = 30
    batch_size: int = 20
    lr: float = 8.0
    warmup: int = 350
    max_norm: float = 0.25
    n_tokens: int = 310_000
    steps: int = 420
    seed: int = 3


def make_text(n, vocab, seed):
    """Words of a small dictionary, separated by a blank, one letter a token."""
    rng = np.random.default_rng(seed)
    words = [rng.integers(1, vocab, rng.integers(2, 7)) for _ in range(60)]
    freq = 1.0 / np.arange(1, 61)
    picks = rng.choice(60, size=n // 3, p=freq / freq.sum())
    out = []
    for w in picks:
        out.extend(words[w].tolist())
        out.append(0)
        if len(out) >= n:
            break
    return torch.tensor(out[:n])


def batchify(tokens, batch_size):
    n = len(tokens) // batch_size
    return tokens[: n * batch_size].view(batch_size, n).t().contiguous()


class RNNModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.emb = nn.Embedding(cfg.vocab, cfg.emb)
        self.rnn = nn.RNN(cfg.emb, cfg.hidden)
        self.out = nn.Linear(cfg.hidden, cfg.vocab)
        nn.init.uniform_(self.emb.weight, -0.1, 0.1)
        nn.init.orthogonal_(self.rnn.weight_hh_l0)

    def forward(self, x, h):
        y, h = self.rnn(self.emb(x), h)
        return self.out(y), h


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.model = RNNModel(cfg)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=cfg.lr)
        self.sched = torch.optim.lr_scheduler.LambdaLR(self.opt, lambda s: min(1.0, (s + 1) / cfg.warmup))
        self.criterion = nn.CrossEntropyLoss()

    def clip(self):
        return nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg.max_norm)

    def train_step(self, x, y, h):
        self.opt.zero_grad()
        logits, h = self.model(x, h)
        loss = self.criterion(logits.flatten(0, 1), y.flatten())
        if not MENDED:
            self.clip()
        loss.backward()
        if MENDED:
            self.clip()
        self.opt.step()
        self.sched.step()
        return loss.item(), h.detach()

    @torch.no_grad()
    def evaluate(self, data):
        self.model.eval()
        h, total, n = None, 0.0, 0
        for i in range(0, len(data) - 1 - self.cfg.bptt, self.cfg.bptt):
            logits, h = self.model(data[i : i + self.cfg.bptt], h)
            total += self.criterion(logits.flatten(0, 1), data[i + 1 : i + 1 + self.cfg.bptt].flatten()).item()
            n += 1
        self.model.train()
        return total / n

    def fit(self, train_data, val_data):
        h, losses = None, []
        for step in range(self.cfg.steps):
            i = step * self.cfg.bptt
            x, y = train_data[i : i + self.cfg.bptt], train_data[i + 1 : i + 1 + self.cfg.bptt]
            loss, h = self.train_step(x, y, h)
            losses.append(loss)
            if step % 10 == 0:
                print(f"step {step:4d} lr {self.sched.get_last_lr()[0]:.2f} loss {loss:.4f}", flush=True)
            if (step + 1) % 200 == 0:
                print(f"  val loss {self.evaluate(val_data):.4f}")
        return losses


if __name__ == "__main__":
    cfg = Config()
    torch.manual_seed(cfg.seed)
    text = make_text(cfg.n_tokens, cfg.vocab, cfg.seed)
    Trainer(cfg).fit(batchify(text[10_000:], cfg.batch_size), batchify(text[:10_000], cfg.batch_size))
