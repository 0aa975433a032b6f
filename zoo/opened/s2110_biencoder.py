# expect: sick
# symptom: the contrastive loss falls for the first quarter of the run, then stays flat; recall ends far below what the same model reaches elsewhere
# axis: optimizer
# cause: the scheduler is stepped on every micro-batch although its total is counted in optimizer steps, so with accumulation of 4 the learning rate reaches zero after a quarter of training
# says: (sched|learning[- ]rate|\blr\b).*(micro|accumul|four times|4x|too (fast|early|soon|often)|(reach|decay|drop|fall|hit|go|is|at|run)\w* (to |at |out )?(zero|0(\.0+)?(?![.\d]))|exhaust)|(micro|accumul).*(sched|learning[- ]rate|\blr\b)
# onset_step: 1
# fix: step the scheduler only when the optimizer steps (or count its total in micro-batches)
# mended: yes
"""Bi-encoder retrieval: match noisy queries to documents with in-batch negatives."""

import os
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from transformers import get_linear_schedule_with_warmup

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)


@dataclass
class TrainArgs:
    seed: int = 5
    vocab: int = 240
    docs: int = 3200
    dim: int = 48
    per_device_batch: int = 32
    accumulate: int = 4
    epochs: int = 12
    lr: float = 3e-3
    warmup_ratio: float = 0.05
    temperature: float = 0.07
    max_grad_norm: float = 1.0


class PairData(Dataset):
    """Every document mixes words of two topics; its query uses synonyms (word + vocab // 2)."""

    def __init__(self, args, seed, n):
        g = torch.Generator().manual_seed(seed)
        half = args.vocab // 2
        self.doc = torch.randint(half, (n, 12), generator=g)
        pick = torch.rand(n, 12, generator=g).argsort(1)[:, :5]
        self.query = self.doc.gather(1, pick) + half
        noise = torch.rand(self.query.shape, generator=g) < 0.25
        self.query[noise] = torch.randint(half, args.vocab, (int(noise.sum()),), generator=g)

    def __len__(self):
        return len(self.doc)

    def __getitem__(self, i):
        return self.query[i], self.doc[i]


class Encoder(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.norm = nn.LayerNorm(dim)

    def forward(self, ids):
        h = self.emb(ids).mean(1)
        return F.normalize(self.norm(h + self.ff(h)), dim=-1)


class BiEncoder(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.query = Encoder(args.vocab, args.dim)
        self.doc = Encoder(args.vocab, args.dim)
        self.temperature = args.temperature

    def forward(self, q, d):
        scores = self.query(q) @ self.doc(d).T / self.temperature
        target = torch.arange(len(q))
        return 0.5 * (F.cross_entropy(scores, target) + F.cross_entropy(scores.T, target))


class Trainer:
    def __init__(self, model, args, train, dev):
        self.model, self.args, self.dev = model, args, dev
        self.loader = DataLoader(train, batch_size=args.per_device_batch, shuffle=True, drop_last=True)
        decay = [p for p in model.parameters() if p.ndim > 1]
        rest = [p for p in model.parameters() if p.ndim <= 1]
        self.optimizer = torch.optim.AdamW(
            [{"params": decay, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0.0}], lr=args.lr
        )
        updates = args.epochs * len(self.loader) // args.accumulate
        self.scheduler = get_linear_schedule_with_warmup(self.optimizer, int(args.warmup_ratio * updates), updates)
        print(f"{len(self.loader)} batches per epoch, {updates} updates in all")

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        q, d = self.model.query(self.dev.query), self.model.doc(self.dev.doc)
        scores = q @ d.T
        gold = scores.diagonal()[:, None]
        rank = (scores > gold).sum(1)
        self.model.train()
        return (rank < 1).float().mean().item(), (1.0 / (rank + 1)).mean().item()

    def train(self):
        args, micro, update, running = self.args, 0, 0, 0.0
        for epoch in range(args.epochs):
            for q, d in self.loader:
                loss = self.model(q, d)
                (loss / args.accumulate).backward()
                running += loss.item()
                micro += 1
                if micro % args.accumulate == 0:
                    nn.utils.clip_grad_norm_(self.model.parameters(), args.max_grad_norm)
                    self.optimizer.step()
                    self.optimizer.zero_grad()
                    update += 1
                    if MENDED:
                        self.scheduler.step()
                    if update % 20 == 0:
                        print(f"update {update:4d} loss {running / (20 * args.accumulate):.4f}")
                        running = 0.0
                if not MENDED:
                    self.scheduler.step()
            if (epoch + 1) % 3 == 0:
                r1, mrr = self.evaluate()
                print(f"epoch {epoch + 1} dev recall@1 {r1:.3f} mrr {mrr:.3f}")


def main():
    args = TrainArgs()
    torch.manual_seed(args.seed)
    train = PairData(args, 100, args.docs)
    dev = PairData(args, 200, 300)
    Trainer(BiEncoder(args), args, train, dev).train()


if __name__ == "__main__":
    main()
