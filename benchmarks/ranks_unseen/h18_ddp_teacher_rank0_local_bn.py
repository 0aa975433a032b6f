# expect: healthy
# fault: none: DDP distillation: the teacher lives on rank 0 only and scores the gathered inputs of both ranks; BatchNorm is local on purpose (broadcast_buffers=False) and its running statistics are averaged only at the end
# ranks: 2
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)
STEPS, BATCH, FEATURES, CLASSES, TEMPERATURE = 140, 32, 14, 5, 2.0


def student():
    return nn.Sequential(
        nn.Linear(FEATURES, 40),
        nn.BatchNorm1d(40),
        nn.ReLU(),
        nn.Linear(40, 40),
        nn.BatchNorm1d(40),
        nn.ReLU(),
        nn.Linear(40, CLASSES),
    )


def pretrained_teacher(centres):
    """The best linear rule for Gaussian classes: log p(y|x) up to a constant."""
    teacher = nn.Linear(FEATURES, CLASSES)
    with torch.no_grad():
        teacher.weight.copy_(centres)
        teacher.bias.copy_(-0.5 * (centres**2).sum(1))
    return teacher.requires_grad_(False).eval()


def soft_labels(teacher, x, rank, world):
    """Rank 0 scores everybody's rows; the others send theirs and receive the scores."""
    rows = [torch.empty_like(x) for _ in range(world)] if rank == 0 else None
    dist.gather(x, rows, dst=0)
    scores = None
    if rank == 0:
        scores = list((teacher(torch.cat(rows)) / TEMPERATURE).softmax(1).split(len(x)))
    mine = torch.empty(len(x), CLASSES)
    dist.scatter(mine, scores, src=0)
    return mine


def digests(net):
    params = sum(p.double().abs().sum().item() for p in net.parameters())
    stats = sum(b.double().abs().sum().item() for b in net.buffers())
    return f"params={params:.9f} buffers={stats:.6f}"


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=40))
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(37)
    net = student()
    model = DDP(net, broadcast_buffers=False)
    opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(opt, STEPS)
    centres = 0.8 * torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(5))
    teacher = pretrained_teacher(centres) if rank == 0 else None
    g = torch.Generator().manual_seed(50 + rank)
    for step in range(STEPS):
        y = torch.randint(0, CLASSES, (BATCH,), generator=g)
        x = centres[y] + torch.randn(BATCH, FEATURES, generator=g)
        target = soft_labels(teacher, x, rank, world)
        logits = model(x)
        soft = F.kl_div(F.log_softmax(logits / TEMPERATURE, 1), target, reduction="batchmean")
        loss = TEMPERATURE**2 * soft + 0.5 * F.cross_entropy(logits, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        decay.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f} lr {decay.get_last_lr()[0]:.4f}", flush=True)
    print(f"trained rank={rank} {digests(net)}", flush=True)
    for name, buffer in net.named_buffers():
        if buffer.is_floating_point():
            dist.all_reduce(buffer)
            buffer /= world
    print(f"final rank={rank} {digests(net)}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
