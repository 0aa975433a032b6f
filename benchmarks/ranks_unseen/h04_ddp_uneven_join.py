# expect: healthy
# fault: none: uneven inputs under DDP and Join: rank 0 has 70 batches, rank 1 has 95; rank 0 shadows the collectives of the last 25 and gets the final weights at the end
# names: -
# onset_step: -
# within: -
# ranks: 2
# rank: -
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

BATCH = 24


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    batches = [70, 95][rank]
    g = torch.Generator().manual_seed(300 + rank)
    x = torch.randn(batches * BATCH, 12, generator=g)
    w = torch.randn(12, generator=torch.Generator().manual_seed(3)) / 12**0.5
    y = torch.sin(2 * x @ w) + 0.1 * torch.randn(len(x), generator=g)
    loader = DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True, generator=g)
    torch.manual_seed(2)
    net = nn.Sequential(nn.Linear(12, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 1))
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with Join([model]):
        for step, (xb, yb) in enumerate(loader):
            loss = F.mse_loss(model(xb).squeeze(-1), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 10 == 0:
                print(f"rank {rank} step {step} loss {loss.item():.4f}", flush=True)
    print(f"final rank={rank} sum={sum(p.double().sum().item() for p in net.parameters()):.9f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
