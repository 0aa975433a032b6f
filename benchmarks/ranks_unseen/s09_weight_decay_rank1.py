# expect: sick
# fault: rank 1 runs with weight_decay 0.3 where rank 0 has 0.01 (another configuration on that host); the gradients are shared, the updates are not the same, the replicas drift
# names: (?is)(?=.*weight[_\s-]?decay)(?=.*(\branks?\b|differ|disagree|unequal))
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


def load_config(rank):
    config = {"lr": 1e-3, "weight_decay": 0.01, "batch_size": 20, "epochs": 2}
    if rank == 1:  # the file on the second host was edited for another job
        config["weight_decay"] = 0.3
    return config


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    cfg = load_config(rank)
    g = torch.Generator().manual_seed(70)
    x = torch.randn(2400, 18, generator=g)
    y = torch.stack([torch.sin(x[:, 0] * 2), x[:, 1] * x[:, 2] / 2], -1)
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data, seed=2)
    loader = DataLoader(data, batch_size=cfg["batch_size"], sampler=sampler)
    torch.manual_seed(3)
    model = DDP(nn.Sequential(nn.Linear(18, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 2)))
    opt = torch.optim.AdamW(model.parameters(), lr=cfg["lr"], weight_decay=cfg["weight_decay"])
    step = 0
    for epoch in range(cfg["epochs"]):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            opt.zero_grad()
            loss = F.mse_loss(model(xb), yb)
            loss.backward()
            opt.step()
            if rank == 0 and step % 10 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
    print(f"final rank={rank} sum={sum(p.double().sum().item() for p in model.parameters()):.9f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
