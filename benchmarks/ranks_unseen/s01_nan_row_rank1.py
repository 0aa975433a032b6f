# expect: sick
# fault: one row of the data set (index 1364, feature 7) is NaN; the sampler gives it to rank 1 at step 41, and DDP's all-reduce spreads the NaN to both ranks
# names: (?is)(?=.*\branks?[\s_=:#]*1\b)(?=.*(\bnan\b|non-?finite|not finite))
# onset_step: 41
# within: 1
# ranks: 2
# rank: 1
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_data():
    g = torch.Generator().manual_seed(11)
    x = torch.randn(1600, 20, generator=g)
    w = torch.randn(20, generator=g) / 20**0.5
    y = torch.sin(2 * x @ w) + 0.05 * torch.randn(1600, generator=g)
    x[1364, 7] = float("nan")
    return TensorDataset(x, y)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1))
    model = DDP(net)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    data = make_data()
    sampler = DistributedSampler(data, shuffle=True, seed=0)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    step = 0
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = F.mse_loss(model(x).squeeze(-1), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 10 == 0 or 39 <= step <= 44:
                print(f"rank {rank} step {step} loss {loss.item():.4f}", flush=True)
            step += 1
    print(f"final rank={rank} sum={sum(p.double().sum().item() for p in net.parameters()):.9f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
