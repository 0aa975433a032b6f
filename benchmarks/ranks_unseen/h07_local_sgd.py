# expect: healthy
# fault: none: local SGD: each rank takes 8 steps of its own, then PeriodicModelAverager averages the parameters; between two averagings they differ on purpose
# names: -
# onset_step: -
# within: -
# ranks: 2
# rank: -
import torch
import torch.distributed as dist
import torch.distributed.algorithms.model_averaging.averagers as averagers
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(66)
    x = torch.randn(2560, 16, generator=g)
    w = torch.randn(16, 5, generator=g)
    y = (x @ w + torch.randn(2560, 5, generator=g)).argmax(-1)
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data, seed=8)
    loader = DataLoader(data, batch_size=20, sampler=sampler)
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 5))
    for p in model.parameters():
        dist.broadcast(p.data, 0)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    averager = averagers.PeriodicModelAverager(period=8, warmup_steps=0)
    step = 0
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            loss = F.cross_entropy(model(xb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
            averager.average_parameters(model.parameters())
            if rank == 0 and step % 10 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
    for p in model.parameters():
        dist.all_reduce(p.data)
        p.data /= dist.get_world_size()
    print(f"final rank={rank} sum={sum(p.double().sum().item() for p in model.parameters()):.9f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
