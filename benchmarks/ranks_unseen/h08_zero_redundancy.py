# expect: healthy
# fault: none: ZeroRedundancyOptimizer over AdamW under DDP: each rank holds the optimizer state of its own part of the parameters only
# names: -
# onset_step: -
# within: -
# ranks: 2
# rank: -
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(77)
    x = torch.randn(2400, 20, generator=g)
    y = torch.stack([torch.sin(x[:, 0] * 2), x[:, 1] * x[:, 2] / 2, x[:, 3].abs()], -1)
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data, seed=9)
    loader = DataLoader(data, batch_size=24, sampler=sampler)
    torch.manual_seed(5)
    net = nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 3))
    model = DDP(net)
    opt = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=2e-3, weight_decay=0.01)
    step = 0
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            loss = F.mse_loss(model(xb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if rank == 0 and step % 10 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
    print(f"final rank={rank} sum={sum(p.double().sum().item() for p in net.parameters()):.9f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
