# expect: healthy
# fault: none: experts on 4 ranks with a learned router and all_to_all: dense parameters are all-reduced, each rank has an expert of its own, and experts on ranks 2 and 3 have another rate on purpose
# ranks: 4
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.nn.functional import all_to_all_single

torch.set_num_threads(1)
STEPS, BATCH, WIDTH, FEATURES, CLASSES = 90, 48, 24, 10, 6
EXPERT_LR = {0: 3e-3, 1: 3e-3, 2: 1e-3, 3: 1e-3}  # 2 and 3 are the experts taken from an older run


class MoE(nn.Module):
    def __init__(self, rank, world):
        super().__init__()
        self.world = world
        self.stem = nn.Linear(FEATURES, WIDTH)
        self.router = nn.Linear(WIDTH, world)
        self.out = nn.Linear(WIDTH, CLASSES)
        torch.manual_seed(500 + rank)
        self.expert = nn.Sequential(nn.Linear(WIDTH, 48), nn.GELU(), nn.Linear(48, WIDTH))

    def dense(self):
        return [*self.stem.parameters(), *self.router.parameters(), *self.out.parameters()]

    def forward(self, x):
        h = torch.relu(self.stem(x))
        gates = self.router(h).softmax(1)
        weight, expert = gates.max(1)
        order = expert.argsort(stable=True)
        send = torch.bincount(expert, minlength=self.world)
        share = send / len(x)
        balance = self.world * (share * gates.mean(0)).sum()
        receive = torch.empty_like(send)
        dist.all_to_all_single(receive, send)
        send, receive = send.tolist(), receive.tolist()
        inbox = all_to_all_single(h.new_empty(sum(receive), WIDTH), h[order], receive, send)
        back = all_to_all_single(h.new_empty(len(x), WIDTH), self.expert(inbox), send, receive)
        mixed = torch.zeros_like(h).index_copy(0, order, back)
        return self.out(h + weight[:, None] * mixed), balance


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=40))
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(3)
    model = MoE(rank, world)
    opt = torch.optim.AdamW(
        [{"params": model.dense(), "lr": 3e-3}, {"params": model.expert.parameters(), "lr": EXPERT_LR[rank]}]
    )
    g = torch.Generator().manual_seed(90 + rank)
    centres = 1.6 * torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(4))
    for step in range(STEPS):
        y = torch.randint(0, CLASSES, (BATCH,), generator=g)
        x = centres[y] + torch.randn(BATCH, FEATURES, generator=g)
        logits, balance = model(x)
        loss = F.cross_entropy(logits, y) + 0.05 * balance
        opt.zero_grad()
        loss.backward()
        flat = torch.cat([p.grad.flatten() for p in model.dense()])
        dist.all_reduce(flat)
        flat /= world
        at = 0
        for p in model.dense():
            p.grad.copy_(flat[at : at + p.numel()].view_as(p))
            at += p.numel()
        for p in model.expert.parameters():
            p.grad /= world
        opt.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dense = sum(p.double().abs().sum().item() for p in model.dense())
    expert = sum(p.double().abs().sum().item() for p in model.expert.parameters())
    print(f"final rank={rank} dense={dense:.9f} expert={expert:.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
