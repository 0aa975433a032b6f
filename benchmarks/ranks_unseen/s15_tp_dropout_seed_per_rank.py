# expect: sick
# fault: tensor parallel: the generator is seeded with SEED + rank, so the dropout on the replicated residual stream has other masks on each rank; activations, loss and the replicated parameters (embed, norm, head) drift apart
# names: (?is)(?=.*(?:embed|norm|head|residual|dropout|drop|\brng\b|seed|random|generator|loss|activation|output|replica|replicated|param|weight|grad))(?=.*(?:differ|drift|diverg|disagree|apart|unequal|not (?:equal|identical|the same|in sync|shared|synchroni[sz]ed|reduced|averaged|all-?reduced)|no longer (?:equal|identical|the same|in sync)|mismatch|out of sync|unsynchroni[sz]ed|inconsistent|never (?:reduced|synchroni[sz]ed|averaged|shared)|local gradient|desync))(?=.*(?:\branks?\b|process|replica|seed))
# onset_step: 0
# within: 25
# ranks: 2
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

torch.set_num_threads(1)
STEPS, BATCH, SEED = 130, 32, 77


class Block(nn.Module):
    def __init__(self, width, drop):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)
        self.drop = nn.Dropout(drop)

    def forward(self, x):
        return x + self.drop(self.fc2(F.gelu(self.fc1(self.norm(x)))))


class Net(nn.Module):
    def __init__(self, width=32, depth=2):
        super().__init__()
        self.embed = nn.Linear(16, width)
        self.blocks = nn.ModuleList(Block(width, 0.15) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def build(mesh):
    torch.manual_seed(SEED)
    model = Net()
    for block in model.blocks:
        parallelize_module(block, mesh, {"fc1": ColwiseParallel(), "fc2": RowwiseParallel()})
    return model


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=40))
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("tp",))
    model = build(mesh)
    torch.manual_seed(SEED + rank)  # kept from the data-parallel version of this script
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, foreach=False)
    g = torch.Generator().manual_seed(5)  # every rank of the group reads the same batch
    w = torch.randn(16, 4, generator=g)
    for step in range(STEPS):
        x = torch.randn(BATCH, 16, generator=g)
        y = (torch.tanh(x) @ w).argmax(1)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"rank {rank} step {step} loss {loss.item():.4f}", flush=True)
    for name, p in model.named_parameters():
        if not isinstance(p, DTensor) or p.placements[0].is_replicate():
            local = p.to_local() if isinstance(p, DTensor) else p
            print(f"final rank={rank} {name} sum={local.double().sum().item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
