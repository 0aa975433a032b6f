# expect: healthy
# fault: none: a small CNN with BatchNorm under DDP with broadcast_buffers=True: between the broadcasts each rank's running stats are its own, as they should be
# names: -
# onset_step: -
# within: -
# ranks: 2
# rank: -
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_data(seed, rows):
    g = torch.Generator().manual_seed(seed)
    stripes = torch.zeros(4, 1, 8, 8)
    stripes[0, :, ::2] = 1
    stripes[1, :, :, ::2] = 1
    stripes[2, :, :4] = 1
    stripes[3, :, :, :4] = 1
    y = torch.randint(0, 4, (rows,), generator=g)
    return TensorDataset(stripes[y] + 0.8 * torch.randn(rows, 1, 8, 8, generator=g), y)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    train, test = make_data(1, 1920), make_data(2, 320)
    sampler = DistributedSampler(train, seed=0)
    loader = DataLoader(train, batch_size=32, sampler=sampler)
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(256, 4),
    )
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    step = 0
    for epoch in range(4):
        sampler.set_epoch(epoch)
        model.train()
        for xb, yb in loader:
            loss = F.cross_entropy(model(xb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if rank == 0 and step % 10 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        model.eval()
        part = torch.utils.data.Subset(test, range(rank, len(test), dist.get_world_size()))
        hits = torch.zeros(2)
        with torch.no_grad():
            for xb, yb in DataLoader(part, batch_size=40):
                hits += torch.tensor([(model(xb).argmax(-1) == yb).sum().item(), len(yb)])
        dist.all_reduce(hits)
        if rank == 0:
            print(f"epoch {epoch} test accuracy {hits[0].item() / hits[1].item():.3f}", flush=True)
    print(f"final rank={rank} sum={sum(p.double().sum().item() for p in net.parameters()):.9f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
