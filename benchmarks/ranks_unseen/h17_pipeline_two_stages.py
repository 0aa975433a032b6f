# expect: healthy
# fault: none: a pipeline of two stages with 4 micro-batches: other modules, other parameter counts, rates and optimizers on each rank; only the last rank has a loss
# ranks: 2
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
STEPS, MICROS, MICRO, WIDTH, CLASSES, FEATURES = 120, 4, 8, 48, 8, 12


class Front(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(FEATURES, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.mix = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return torch.relu(self.mix(torch.relu(self.norm(self.stem(x)))))


class Back(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(WIDTH, 96), nn.GELU(), nn.Dropout(0.1), nn.Linear(96, WIDTH), nn.GELU())
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, h):
        return self.head(self.body(h))


def micro_batches(step):
    """The same on both ranks; the front uses x, the back uses y."""
    g = torch.Generator().manual_seed(1000 + step)
    centres = 1.5 * torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(12))
    y = torch.randint(0, CLASSES, (MICROS, MICRO), generator=g)
    return centres[y] + torch.randn(MICROS, MICRO, FEATURES, generator=g), y


def run_front():
    torch.manual_seed(1)
    stage = Front()
    opt = torch.optim.AdamW(stage.parameters(), lr=2e-3)
    for step in range(STEPS):
        x, _ = micro_batches(step)
        kept, pending = [], []
        for i in range(MICROS):  # all forwards, then all backwards
            hidden = stage(x[i])
            kept.append(hidden)
            pending.append(dist.isend(hidden.detach().contiguous(), 1, tag=i))
        for work in pending:
            work.wait()
        opt.zero_grad()
        for i in range(MICROS):
            grad = torch.empty_like(kept[i])
            dist.recv(grad, 1, tag=MICROS + i)
            kept[i].backward(grad)
        opt.step()
    return stage


def run_back():
    torch.manual_seed(2)
    stage = Back()
    opt = torch.optim.SGD(stage.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, STEPS)
    for step in range(STEPS):
        _, y = micro_batches(step)
        opt.zero_grad()
        total, pending = 0.0, []
        for i in range(MICROS):
            hidden = torch.empty(MICRO, WIDTH)
            dist.recv(hidden, 0, tag=i)
            hidden.requires_grad_(True)
            loss = F.cross_entropy(stage(hidden), y[i]) / MICROS
            loss.backward()
            pending.append(dist.isend(hidden.grad, 0, tag=MICROS + i))
            total += loss.item()
        for work in pending:
            work.wait()
        opt.step()
        schedule.step()
        if step % 10 == 0:
            print(f"step {step} loss {total:.4f}", flush=True)
    return stage


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=40))
    rank = dist.get_rank()
    stage = run_front() if rank == 0 else run_back()
    dist.barrier()
    print(f"final rank={rank} sum={sum(p.double().sum().item() for p in stage.parameters()):.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
