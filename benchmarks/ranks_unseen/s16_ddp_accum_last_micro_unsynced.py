# expect: sick
# fault: from step 60 the batch schedule accumulates 3 micro-batches, and DDP synchronises on the first of them instead of the last; the other two add local gradients after the all-reduce, so the replicas drift apart
# names: (?is)(?=.*(?:\branks?\b|process|replica))(?=.*(?:param|weight|bias|replica|model|grad|tensor|no_sync|accumulat))(?=.*(?:differ|drift|diverg|disagree|apart|unequal|not (?:equal|identical|the same|in sync|shared|synchroni[sz]ed|reduced|averaged|all-?reduced)|no longer (?:equal|identical|the same|in sync)|mismatch|out of sync|unsynchroni[sz]ed|inconsistent|never (?:reduced|synchroni[sz]ed|averaged|shared)|local gradient|desync))
# onset_step: 60
# within: 20
# ranks: 2
import contextlib
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)
STEPS, MICRO, SEQ, VOCAB = 120, 8, 12, 18


class TinyLM(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, VOCAB)

    def forward(self, tokens):
        hidden, _ = self.rnn(self.embed(tokens))
        return self.out(hidden)


def accumulation(step):
    """Small batches at first, larger ones once the loss has come down."""
    return 1 if step < 60 else 3


def sentences(g, table):
    """Strings of a random Markov chain."""
    tokens = torch.zeros(MICRO, SEQ + 1, dtype=torch.long)
    tokens[:, 0] = torch.randint(0, VOCAB, (MICRO,), generator=g)
    for t in range(SEQ):
        tokens[:, t + 1] = torch.multinomial(table[tokens[:, t]], 1, generator=g).squeeze(1)
    return tokens[:, :-1], tokens[:, 1:]


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=40))
    rank = dist.get_rank()
    torch.manual_seed(31)
    model = DDP(TinyLM())
    opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
    table = torch.softmax(3 * torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(1)), 1)
    g = torch.Generator().manual_seed(600 + rank)
    for step in range(STEPS):
        n = accumulation(step)
        opt.zero_grad()
        total = 0.0
        for micro in range(n):
            boundary = micro % n == 0
            with contextlib.nullcontext() if boundary else model.no_sync():
                x, y = sentences(g, table)
                loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten()) / n
                loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 10 == 0 and rank == 0:
            print(f"step {step} micro-batches {n} loss {total:.4f}", flush=True)
        if step in (59, STEPS - 1):
            digest = sum(p.double().abs().sum().item() for p in model.parameters())
            print(f"after step {step} rank={rank} abs sum={digest:.9f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
