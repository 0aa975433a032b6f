# expect: sick
# fault: the last two encoder layers are frozen when DDP wraps the model and unfrozen at step 60, so DDP never reduces them and encoder.4 and encoder.6 drift apart between the ranks
# names: (?is)(?=.*(?:encoder|\b(?:ranks?|process(?:es)?|workers?)[\s:=#_(\[-]*(?:\d+(?:\s*(?:,|and|&|vs\.?|from|to|/|-)\s*)+)*1\b|\branks\b|replicas))(?=.*(?:param|weight|bias|replica|model|grad|tensor))(?=.*(?:differ|drift|diverg|disagree|apart|unequal|not (?:equal|identical|the same|in sync|shared|synchroni[sz]ed|reduced|averaged|all-?reduced)|no longer (?:equal|identical|the same|in sync)|mismatch|out of sync|unsynchroni[sz]ed|inconsistent|never (?:reduced|synchroni[sz]ed|averaged|shared)|local gradient|desync))
# onset_step: 60
# within: 20
# ranks: 2
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

torch.set_num_threads(1)
STEPS, BATCH, UNFREEZE_AT = 140, 32, 60


class Finetune(nn.Module):
    """A 'pretrained' encoder and a fresh head."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(24, 64),
            nn.ReLU(),
            nn.Linear(64, 64),
            nn.ReLU(),
            nn.Linear(64, 64),
            nn.ReLU(),
            nn.Linear(64, 32),
            nn.ReLU(),
        )
        self.head = nn.Linear(32, 5)

    def forward(self, x):
        return self.head(self.encoder(x))


def dataset():
    g = torch.Generator().manual_seed(9)
    x = torch.randn(2560, 24, generator=g)
    w = torch.randn(24, 5, generator=g)
    y = (x @ w + 0.5 * torch.randn(2560, 5, generator=g)).argmax(1)
    return TensorDataset(x, y)


def batches(loader, sampler):
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=40))
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(21)
    net = Finetune()
    net.encoder.requires_grad_(False)
    model = DDP(net)
    opt = torch.optim.Adam(net.head.parameters(), lr=2e-2)

    data = dataset()
    sampler = DistributedSampler(data, world, rank, shuffle=True, seed=2)
    stream = batches(DataLoader(data, BATCH, sampler=sampler, drop_last=True), sampler)
    for step in range(STEPS):
        if step == UNFREEZE_AT:
            top = [p for layer in net.encoder[4:] for p in layer.parameters()]
            for p in top:
                p.requires_grad_(True)
            opt.add_param_group({"params": top, "lr": 1e-3})
            print(f"rank {rank} step {step}: unfroze {len(top)} tensors", flush=True)
        x, y = next(stream)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0 and rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    for name, p in net.named_parameters():
        print(f"final rank={rank} {name} sum={p.double().sum().item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
