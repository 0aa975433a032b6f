# expect: sick
# fault: DistributedSampler(shuffle=True) without set_epoch: every epoch of 12 steps has the same batches in the same order on each rank
# names: (?is)(set_epoch|(?=.*(epoch|order|shuffl|sampler))(?=.*(same|identical|repeat|reshuffl|again)))
# onset_step: 12
# within: 24
# ranks: 2
# rank: -
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
    g = torch.Generator().manual_seed(90)
    x = torch.randn(768, 20, generator=g)
    w = torch.randn(20, 4, generator=g)
    y = (x @ w + torch.randn(768, 4, generator=g)).argmax(-1)
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data, shuffle=True, seed=0)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    torch.manual_seed(8)
    model = DDP(nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Dropout(0.1), nn.Linear(40, 4)))
    torch.manual_seed(80 + rank)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = 0
    for epoch in range(12):
        for xb, yb in loader:
            opt.zero_grad()
            loss = F.cross_entropy(model(xb), yb)
            loss.backward()
            opt.step()
            if step % 12 == 0:
                print(
                    f"rank {rank} epoch {epoch} step {step} loss {loss.item():.4f} first row {xb[0, :3].tolist()}",
                    flush=True,
                )
            step += 1
    print(f"final rank={rank} sum={sum(p.double().sum().item() for p in model.parameters()):.9f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
