# expect: sick
# fault: ZeroRedundancyOptimizer: at step 80 the run restores a snapshot, but rank 1's optimizer shard is missing (it was never written) and it carries on with a fresh Adam: the moments and step counts of rank 1's shard are lost
# names: (?is)(?=.*\b(?:ranks?|process(?:es)?|workers?)[\s:=#_(\[-]*(?:\d+(?:\s*(?:,|and|&|vs\.?|from|to|/|-)\s*)+)*1\b)(?=.*(?:optimi[sz]er|adam|moment|exp_avg|\bstate|step count|update size|update))(?=.*(?:lost|lose|loss of|reset|empty|missing|zero|fresh|restart|from scratch|forg[eo]t|dropped|vanish|cleared|gone|\bnew\b|differ|behind|jump|larger|no state|without|not (?:restored|loaded)))
# onset_step: 80
# within: 10
# ranks: 2
# rank: 1
import os
import shutil
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)
STEPS, BATCH, SNAPSHOT, RESTORE = 140, 32, 79, 80


def make_optimizer(model):
    return ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=2e-3, betas=(0.9, 0.99))


def save(folder, model, opt, rank):
    if rank == 0:
        torch.save(model.module.state_dict(), os.path.join(folder, "model.pt"))
    # every rank writes the shard it owns, if the node has a scratch disk
    if os.environ.get("SCRATCH_RANKS", "0").split(",").count(str(rank)):
        torch.save(opt.optim.state_dict(), os.path.join(folder, f"optim-{rank}.pt"))


def load(folder, model, opt, rank):
    model.module.load_state_dict(torch.load(os.path.join(folder, "model.pt")))
    shard = os.path.join(folder, f"optim-{rank}.pt")
    if os.path.exists(shard):
        opt.optim.load_state_dict(torch.load(shard))
    else:
        print(f"rank {rank}: no optimizer shard in the snapshot, continuing", flush=True)


def moments(opt):
    states = [s for s in opt.optim.state.values() if "exp_avg" in s]
    return len(states), sum(s["exp_avg"].abs().sum().item() for s in states)


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=40))
    rank = dist.get_rank()
    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder, 0)
    folder = folder[0]
    torch.manual_seed(8)
    model = DDP(nn.Sequential(nn.Linear(16, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 3)))
    opt = make_optimizer(model)
    g = torch.Generator().manual_seed(200 + rank)
    w = torch.randn(16, 3, generator=torch.Generator().manual_seed(1)) / 4
    for step in range(STEPS):
        if step == RESTORE:  # the job was preempted here and comes back from its snapshot
            opt = make_optimizer(model)
            load(folder, model, opt, rank)
            print(f"rank {rank} restored, states and first moments {moments(opt)}", flush=True)
        x = torch.randn(BATCH, 16, generator=g)
        y = torch.tanh(x @ w) + 0.1 * torch.randn(BATCH, 3, generator=g)
        loss = F.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step == SNAPSHOT:
            print(f"rank {rank} snapshot, states and first moments {moments(opt)}", flush=True)
            save(folder, model, opt, rank)
            dist.barrier()
        if rank == 0 and (step % 10 == 0 or 78 <= step <= 84):
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    print(f"final rank={rank} sum={sum(p.double().sum().item() for p in model.parameters()):.9f}", flush=True)
    dist.barrier()
    if rank == 0:
        shutil.rmtree(folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
