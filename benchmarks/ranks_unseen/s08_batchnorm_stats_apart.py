# expect: sick
# fault: DDP(broadcast_buffers=False) with shards of two domains (rank 1's features are shifted and scaled): running_mean and running_var differ grossly between ranks, and rank 0's model, the one that is saved, loses 20 to 30 points of accuracy in eval mode on rank 1's domain (rank 1's loses 50 to 60 on rank 0's). Judged sick for that; small differences on like shards would be normal
# names: (?is)(running_(mean|var)|buffers?|batch[\s-]?norm).{0,160}(differ|drift|diverge|disagree|apart|not equal|unequal|not broadcast|not the same|mismatch)|(differ|drift|disagree|diverge|mismatch)\w*.{0,160}(running_(mean|var)|buffers?)
# onset_step: 0
# within: 20
# ranks: 2
# rank: -
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS, BATCH, ROWS = 150, 32, 2400


def make_data(seed, rows):
    """First half: sensor A. Second half: sensor B, same signal, other offset and gain."""
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(rows, 12, generator=g)
    w = torch.randn(12, 3, generator=torch.Generator().manual_seed(1))
    y = (z @ w).argmax(-1)
    x = z.clone()
    x[rows // 2 :] = 3.0 * z[rows // 2 :] + 4.0
    return x, y


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    x, y = make_data(50, ROWS)
    vx, vy = make_data(51, 400)
    per = ROWS // world
    x, y = x[rank * per : (rank + 1) * per], y[rank * per : (rank + 1) * per]
    torch.manual_seed(9)
    net = nn.Sequential(
        nn.BatchNorm1d(12),
        nn.Linear(12, 48),
        nn.BatchNorm1d(48),
        nn.ReLU(),
        nn.Linear(48, 48),
        nn.BatchNorm1d(48),
        nn.ReLU(),
        nn.Linear(48, 3),
    )
    model = DDP(net, broadcast_buffers=False)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    g = torch.Generator().manual_seed(60 + rank)
    for step in range(STEPS):
        idx = torch.randint(0, per, (BATCH,), generator=g)
        opt.zero_grad()
        loss = F.cross_entropy(model(x[idx]), y[idx])
        loss.backward()
        opt.step()
        if step % 50 == 49:
            net.eval()
            with torch.no_grad():
                out = net(vx)
            half = len(vx) // 2
            a = (out[:half].argmax(-1) == vy[:half]).float().mean().item()
            b = (out[half:].argmax(-1) == vy[half:]).float().mean().item()
            net.train()
            print(f"rank {rank} step {step} loss {loss.item():.4f} eval accuracy A {a:.3f} B {b:.3f}", flush=True)
    print(f"final rank={rank} sum={sum(p.double().sum().item() for p in net.parameters()):.9f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
