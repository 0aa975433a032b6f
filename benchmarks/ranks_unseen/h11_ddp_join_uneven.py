# expect: healthy
# fault: none: DDP with join(): rank 0 has 90 batches of 16 rows and rank 1 has 130 of 24; rank 1 goes on alone while rank 0 shadows its collectives
# ranks: 2
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)
CLIENT = {0: (90, 16), 1: (130, 24)}  # batches and rows a batch of each hospital
FEATURES = 18


class Risk(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(FEATURES, 48), nn.LayerNorm(48), nn.ReLU(), nn.Dropout(0.1), nn.Linear(48, 24), nn.ReLU()
        )
        self.head = nn.Linear(24, 1)

    def forward(self, x):
        return self.head(self.body(x)).squeeze(1)


def patients(rank):
    """The two populations differ a little, as hospitals do."""
    count, rows = CLIENT[rank]
    g = torch.Generator().manual_seed(300 + rank)
    w = torch.randn(FEATURES, generator=torch.Generator().manual_seed(1))
    for _ in range(count):
        x = torch.randn(rows, FEATURES, generator=g) + 0.1 * rank
        p = torch.sigmoid(2 * (x @ w) + 0.3 * x[:, 0] * x[:, 1])
        yield x, torch.bernoulli(p, generator=g)


def digest(model):
    return sum(p.double().abs().sum().item() for p in model.parameters())


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=40))
    rank = dist.get_rank()
    torch.manual_seed(17)
    model = DDP(Risk())
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    torch.manual_seed(1000 + rank)  # dropout differs between data-parallel ranks
    with Join([model]):
        for step, (x, y) in enumerate(patients(rank)):
            loss = F.binary_cross_entropy_with_logits(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 20 == 0:
                print(f"rank {rank} step {step} rows {len(x)} loss {loss.item():.4f}", flush=True)
            if step == 80:
                print(f"rank {rank} step {step} digest {digest(model):.9f}", flush=True)
    print(f"final rank={rank} steps={step + 1} digest={digest(model):.9f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
