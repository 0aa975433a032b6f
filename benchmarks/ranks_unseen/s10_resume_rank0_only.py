# expect: sick
# fault: on resume only rank 0 loads the checkpoint; DDP broadcasts the weights but nothing broadcasts the optimizer, so rank 1 starts with empty Adam moments (step count 0 against 200) and drifts from the first update on
# names: (?is)(?=.*(optimi[sz]er|exp_avg|moments?))(?=.*(\branks?\b))(?=.*(differ|disagree|missing|empty|not loaded|apart|unequal|without|lacks?|state))
# onset_step: 0
# within: 20
# ranks: 2
# rank: 1
# launches: 2
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

CKPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "s10_checkpoint.pt")
BATCH = 32


def build():
    torch.manual_seed(4)
    net = nn.Sequential(nn.Linear(14, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 3))
    return net, torch.optim.Adam(net.parameters(), lr=5e-4)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    net, opt = build()
    start, stop = 0, 200
    if os.path.exists(CKPT):
        start, stop = 200, 320
        if rank == 0:
            state = torch.load(CKPT, weights_only=True)
            net.load_state_dict(state["model"])
            opt.load_state_dict(state["optimizer"])
            print(f"resumed at step {state['step']}", flush=True)
    model = DDP(net)
    w = torch.randn(14, 3, generator=torch.Generator().manual_seed(6))
    for step in range(start, stop):
        g = torch.Generator().manual_seed(step * 2 + rank)
        x = torch.randn(BATCH, 14, generator=g)
        y = (x @ w + torch.randn(BATCH, 3, generator=g)).argmax(-1)
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    if start == 0 and rank == 0:
        torch.save({"model": net.state_dict(), "optimizer": opt.state_dict(), "step": stop}, CKPT)
    print(f"final rank={rank} sum={sum(p.double().sum().item() for p in net.parameters()):.9f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
