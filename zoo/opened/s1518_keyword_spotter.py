# expect: sick
# symptom: the loss falls far more slowly than in a colleague's run with the same settings (2.3 against 1.3 after the same steps); many weights are bit for bit what they were at the start
# axis: precision
# cause: weights (and so the optimizer's updates and states) are kept in bfloat16 without an fp32 master copy: with the small learning rate most updates are less than half a bf16 step and round away
# says: (bf16|bfloat16|half precision|low[- ]precision|16[- ]bit).{0,160}(round|master|lost|vanish|too small|swallow|underflow|resolution|mantissa|not change|unchanged|stall|param|weight)|(master|fp32|float32).{0,40}(cop|weight|param)|(update|step)\w*.{0,80}(round\w*|lost|swallow|vanish|below|smaller than).{0,80}(bf16|bfloat16|ulp|precision|resolution|zero|away)
# onset_step: 0
# fix: keep the parameters in fp32 and use bf16 only through autocast (or an optimizer with fp32 master weights / stochastic rounding)
# mended: the parameters stay in float32, the forward pass runs in bf16 autocast as before
import argparse
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)


class Keywords(Dataset):
    """Log-mel like sequences (T x F): each keyword is a sequence of three sounds with moving formants."""

    def __init__(self, n, n_words, seed, frames=24, mels=16):
        words = np.random.default_rng(0)
        sounds = words.uniform(1, mels - 2, (8, 2))
        lexicon = words.integers(0, 8, (n_words, 3))
        rng = np.random.default_rng(seed)
        self.y = rng.integers(0, n_words, n)
        self.x = rng.normal(0, 0.7, (n, frames, mels)).astype(np.float32)
        f = np.arange(mels)
        for i, w in enumerate(self.y):
            cuts = np.sort(rng.choice(np.arange(4, frames - 3), 2, replace=False))
            which = np.digitize(np.arange(frames), cuts)
            centre = sounds[lexicon[w][which]] + rng.normal(0, 0.5, (1, 2))
            for c in (0, 1):
                self.x[i] += 1.5 * np.exp(-0.5 * (f[None] - centre[:, c : c + 1]) ** 2)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return torch.from_numpy(self.x[i]), int(self.y[i])


class Spotter(nn.Module):
    def __init__(self, mels, dim, heads, layers, n_words, frames):
        super().__init__()
        self.proj = nn.Linear(2 * mels, dim)
        self.pos = nn.Parameter(torch.randn(frames // 2, dim) * 0.1)
        layer = nn.TransformerEncoderLayer(dim, heads, 2 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, n_words))

    def forward(self, x):
        b, t, f = x.shape
        h = self.proj(x.reshape(b, t // 2, 2 * f)) + self.pos
        return self.head(self.encoder(h).mean(1))


class Trainer:
    def __init__(self, args):
        self.args = args
        self.dtype = torch.float32 if MENDED else torch.bfloat16
        self.model = Spotter(16, 64, 4, 2, args.words, 24).to(self.dtype)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=args.lr, weight_decay=0.01)
        self.train_loader = DataLoader(Keywords(args.n_train, args.words, 1), args.batch, shuffle=True, drop_last=True)
        self.val_loader = DataLoader(Keywords(400, args.words, 2), 200)
        self.step = 0

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.model(x.to(self.dtype)).float()

    def train_epoch(self):
        self.model.train()
        for x, y in self.train_loader:
            loss = F.cross_entropy(self.forward(x), y)
            self.opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
            self.opt.step()
            if self.step % 10 == 0:
                print(f"step {self.step:4d} loss {loss.item():.4f}", flush=True)
            self.step += 1

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        loss = hits = 0
        for x, y in self.val_loader:
            logits = self.forward(x)
            loss += F.cross_entropy(logits, y, reduction="sum").item()
            hits += (logits.argmax(1) == y).sum().item()
        n = len(self.val_loader.dataset)
        return loss / n, hits / n

    def fit(self):
        for epoch in range(self.args.epochs):
            self.train_epoch()
            loss, acc = self.validate()
            print(f"epoch {epoch} val loss {loss:.4f} acc {acc:.3f}", flush=True)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--words", type=int, default=20)
    p.add_argument("--n-train", type=int, default=2400)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--epochs", type=int, default=6)
    p.add_argument("--lr", type=float, default=1e-4)
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()
    torch.manual_seed(args.seed)
    Trainer(args).fit()
