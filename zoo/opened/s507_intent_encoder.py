# expect: sick
# symptom: the loss goes down much more slowly than in the earlier full-precision runs and stays high
# axis: precision
# cause: the weights themselves are bfloat16 without float32 master copies, so most AdamW updates of 1e-4 are smaller than half a unit in the last place and are rounded away
# says: (bf16|bfloat16|half|low|16.?bit).{0,80}(round|master|update|lost|too small|no.?op|vanish|swallow|ulp|resolution|precision of|weight|param)|(round\w*|lost|swallow\w*|vanish\w*|no.?op|below).{0,60}(bf16|bfloat16|ulp)|master (weight|cop|param)|updates?.{0,40}(rounded|round to|lost|swallowed|no.?op)
# onset_step: 1
# fix: keep the parameters in float32 and use autocast for the bfloat16 arithmetic
# mended: with MENDED=1 the model stays float32 and the forward runs under torch.autocast("cpu", dtype=torch.bfloat16)
import contextlib
import os
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
torch.manual_seed(17)
rng = random.Random(17)

VOCAB, LENGTH, INTENTS = 600, 16, 12


def utterances(n):
    rows, labels = [], []
    for _ in range(n):
        intent = rng.randrange(INTENTS)
        row = [rng.randrange(200, VOCAB) for _ in range(LENGTH)]
        for _ in range(5):
            row[rng.randrange(LENGTH)] = intent * 14 + rng.randrange(14)
        rows.append(row)
        labels.append(intent)
    return TensorDataset(torch.tensor(rows), torch.tensor(labels))


class IntentModel(nn.Module):
    def __init__(self, dim=128, layers=2):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, dim)
        self.score = nn.Linear(dim, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, INTENTS)

    def forward(self, ids):
        words = self.tok(ids)
        weight = self.score(words).softmax(1)
        x = (weight * words).sum(1)
        for block in self.blocks:
            x = x + block(x)
        return self.head(self.norm(x))


class Runner:
    def __init__(self, model, lr):
        self.model = model
        decay = [p for p in model.parameters() if p.dim() > 1]
        rest = [p for p in model.parameters() if p.dim() <= 1]
        self.opt = torch.optim.AdamW(
            [{"params": decay, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0.0}], lr=lr
        )
        self.step = 0

    def context(self):
        return torch.autocast("cpu", dtype=torch.bfloat16) if MENDED else contextlib.nullcontext()

    def train_epoch(self, loader, every=50):
        self.model.train()
        for ids, intent in loader:
            with self.context():
                logits = self.model(ids)
            loss = F.cross_entropy(logits.float(), intent)
            self.opt.zero_grad(set_to_none=True)
            loss.backward()
            self.opt.step()
            self.step += 1
            if self.step % every == 0:
                print(f"step {self.step} loss {loss.item():.4f}", flush=True)

    @torch.no_grad()
    def accuracy(self, loader):
        self.model.eval()
        hits = total = 0
        for ids, intent in loader:
            with self.context():
                hits += (self.model(ids).argmax(1) == intent).sum().item()
            total += len(intent)
        return hits / total


def main():
    train = DataLoader(utterances(6400), batch_size=32, shuffle=True)
    test = DataLoader(utterances(480), batch_size=120)
    model = IntentModel()
    if not MENDED:
        model = model.to(torch.bfloat16)
    runner = Runner(model, lr=1e-4)
    for epoch in range(3):
        runner.train_epoch(train)
        print(f"epoch {epoch} test accuracy {runner.accuracy(test):.3f}", flush=True)


if __name__ == "__main__":
    main()
