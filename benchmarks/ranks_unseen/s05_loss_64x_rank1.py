# expect: sick
# fault: rank 1 sums the loss over its 64 rows where rank 0 averages, so its loss and local gradient are 64 times too large and its data outvote rank 0's
# names: (?is)(?=.*\branks?[^.\n]{0,20}\b1\b)(?=.*(loss|gradients?|norm))
# onset_step: 0
# within: 20
# ranks: 2
# rank: 1
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(31)
    x = torch.randn(5120, 16, generator=g)
    w = torch.randn(16, 6, generator=g)
    y = (x @ w + torch.randn(5120, 6, generator=g)).argmax(-1)
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data, seed=1, drop_last=True)
    loader = DataLoader(data, batch_size=64, sampler=sampler, drop_last=True)
    torch.manual_seed(1)
    model = DDP(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 6)))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss(reduction="sum" if rank == 1 else "mean")
    step = 0
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            opt.zero_grad()
            loss = criterion(model(xb), yb)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            if step % 10 == 0:
                print(f"rank {rank} step {step} loss {loss.item():.4f}", flush=True)
            step += 1
    print(f"final rank={rank} sum={sum(p.double().sum().item() for p in model.parameters()):.9f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
