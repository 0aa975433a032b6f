# expect: healthy
# fault: none: DDP with 4 micro-batches per update, the first three under no_sync, loss divided by 4
# names: -
# onset_step: -
# within: -
# ranks: 2
# rank: -
import contextlib

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

ACCUM = 4


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(15)
    x = torch.randn(3200, 16, generator=g)
    w = torch.randn(16, 5, generator=g)
    y = (x @ w + torch.randn(3200, 5, generator=g)).argmax(-1)
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data, seed=4)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 5))
    model = DDP(net)
    torch.manual_seed(100 + rank)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    step, shown = 0, 0.0
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for i, (xb, yb) in enumerate(loader):
            last = i % ACCUM == ACCUM - 1
            with contextlib.nullcontext() if last else model.no_sync():
                loss = F.cross_entropy(model(xb), yb) / ACCUM
                loss.backward()
            shown += loss.item()
            if last:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                opt.zero_grad()
                if rank == 0 and step % 10 == 0:
                    print(f"step {step} loss {shown:.4f}", flush=True)
                step, shown = step + 1, 0.0
    print(f"final rank={rank} sum={sum(p.double().sum().item() for p in net.parameters()):.9f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
