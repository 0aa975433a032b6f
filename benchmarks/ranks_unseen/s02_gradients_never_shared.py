# expect: sick
# fault: data parallel by hand in which the call that averages the gradients is missing: each rank trains its own copy, and only the logged loss is averaged
# names: (?is)(gradients?.{0,60}(not|never|un)[\s-]*(\w+\s+){0,3}(shared|reduced|averaged|synchroni[sz]ed|all-?reduced)|(parameters?|weights?|replicas?|ranks?).{0,80}(differ|drift|diverge|disagree|apart|not equal|not the same))
# onset_step: 0
# within: 20
# ranks: 2
# rank: -
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def average_gradients(model):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    g = torch.Generator().manual_seed(21)
    x = torch.randn(2400, 24, generator=g)
    teacher = torch.randn(24, 5, generator=g)
    y = (x @ teacher + 0.5 * torch.randn(2400, 5, generator=g)).argmax(-1)
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data, seed=3)
    loader = DataLoader(data, batch_size=24, sampler=sampler)

    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 5))
    for p in model.parameters():
        dist.broadcast(p.data, 0)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            opt.zero_grad()
            loss = F.cross_entropy(model(xb), yb)
            loss.backward()
            opt.step()
            shown = loss.detach().clone()
            dist.all_reduce(shown)
            if rank == 0 and step % 10 == 0:
                print(f"step {step} loss {shown.item() / world:.4f}", flush=True)
            step += 1
    print(f"final rank={rank} sum={sum(p.double().sum().item() for p in model.parameters()):.9f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
