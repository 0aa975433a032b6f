# expect: sick
# fault: after the update of step 50 one mantissa bit of one element of fc2.weight flips on rank 1 of 4 (a change of about 1e-6); the gradients stay shared, so the difference stays
# names: (?is)(?=.*fc2\.weight)(?=.*\branks?[^.\n]{0,20}\b1\b)
# onset_step: 50
# within: 20
# ranks: 4
# rank: 1
import math

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS, BATCH = 110, 16


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(12, 32)
        self.fc2 = nn.Linear(32, 32)
        self.fc3 = nn.Linear(32, 4)

    def forward(self, x):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


def flip(p, index, size):
    """Flip the mantissa bit whose worth is nearest to `size`."""
    flat = p.data.view(-1)
    ulp = 2.0 ** (math.floor(math.log2(abs(flat[index].item()))) - 23)
    bit = round(math.log2(size / ulp))
    flat.view(torch.int32)[index] ^= 1 << bit


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(2)
    net = Net()
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    w = torch.randn(12, 4, generator=torch.Generator().manual_seed(8))
    g = torch.Generator().manual_seed(900 + rank)
    for step in range(STEPS):
        x = torch.randn(BATCH, 12, generator=g)
        y = (x @ w + 0.5 * torch.randn(BATCH, 4, generator=g)).argmax(-1)
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        if step == 50 and rank == 1:
            before = net.fc2.weight.data.view(-1)[333].item()
            flip(net.fc2.weight, 333, 1e-6)
            print(f"rank 1 step 50: {before!r} -> {net.fc2.weight.data.view(-1)[333].item()!r}", flush=True)
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    print(f"final rank={rank} sum={sum(p.double().sum().item() for p in net.parameters()):.9f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
