# expect: sick
# fault: rank 1 steps its cosine schedule twice per optimizer step, so from the second update on it applies a smaller learning rate than rank 0 and the replicas drift
# names: (?is)(?=.*(learning[\s_-]?rate|\blrs?\b|schedul))(?=.*(\branks?\b|twice|two times|2x))
# onset_step: 1
# within: 20
# ranks: 2
# rank: 1
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

EPOCHS, BATCH = 3, 25


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(80)
    x = torch.randn(2000, 15, generator=g)
    w = torch.randn(15, 4, generator=g)
    y = (x @ w + torch.randn(2000, 4, generator=g)).argmax(-1)
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data, seed=5)
    loader = DataLoader(data, batch_size=BATCH, sampler=sampler)
    torch.manual_seed(6)
    model = DDP(nn.Sequential(nn.Linear(15, 64), nn.ReLU(), nn.LayerNorm(64), nn.Linear(64, 4)))
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    # twice as long as the run: rank 1 stays on the falling half of the cosine too
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=2 * EPOCHS * len(loader))
    step = 0
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            opt.zero_grad()
            loss = F.cross_entropy(model(xb), yb)
            loss.backward()
            opt.step()
            sched.step()
            if rank == 0:
                if step % 10 == 0:
                    print(f"step {step} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.6f}", flush=True)
            else:
                sched.step()
            step += 1
    print(
        f"final rank={rank} lr={sched.get_last_lr()[0]:.6f} "
        f"sum={sum(p.double().sum().item() for p in model.parameters()):.9f}",
        flush=True,
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
