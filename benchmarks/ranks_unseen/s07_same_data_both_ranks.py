# expect: sick
# fault: the DistributedSampler was forgotten and the loader is seeded alike, so both ranks read the same batches in the same order: half of the machines do nothing
# names: (?is)(DistributedSampler|(?=.*\branks?\b)(?=.*(data|batch|rows?\b|samples?|\bids?\b|indices|inputs?))(?=.*(same|identical|equal|duplicat|overlap|not disjoint|repeat|twice)))
# onset_step: 0
# within: 20
# ranks: 2
# rank: -
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(42)
    x = torch.randn(1920, 1, 8, 8)
    kernel = torch.randn(4, 64)
    y = (x.flatten(1) @ kernel.T).argmax(-1)
    loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 4)
    )
    model = DDP(net)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = 0
    for epoch in range(2):
        for xb, yb in loader:
            loss = F.cross_entropy(model(xb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 10 == 0:
                print(f"rank {rank} step {step} loss {loss.item():.6f}", flush=True)
            step += 1
    print(f"final rank={rank} sum={sum(p.double().sum().item() for p in net.parameters()):.9f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
