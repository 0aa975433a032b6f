# expect: sick
# fault: from step 60 rank 1's gradients live outside the flat bucket that is all-reduced (a probe there called zero_grad(set_to_none=True)), so it sends zeros and updates with its own local gradients; the collectives stay paired
# names: (?is)(?=.*\branks?[^.\n]{0,20}\b1\b)(?=.*(gradients?.{0,80}(not|never|un|differ|disagree|zero|skip|stale|local)|(parameters?|weights?|replicas?).{0,80}(differ|drift|diverge|disagree|apart|not equal)))
# onset_step: 60
# within: 20
# ranks: 2
# rank: 1
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

STEPS, BATCH = 140, 32


class Bucket:
    """All gradients as views into one flat buffer: one all-reduce a step."""

    def __init__(self, params):
        self.params = list(params)
        self.flat = torch.zeros(sum(p.numel() for p in self.params))
        at = 0
        for p in self.params:
            p.grad = self.flat[at : at + p.numel()].view_as(p)
            at += p.numel()

    def average(self):
        dist.all_reduce(self.flat)
        self.flat /= dist.get_world_size()

    def zero(self):
        self.flat.zero_()


def sensitivity(model, opt, x, y):
    """Gradient norm of the first layer on one batch, for the log."""
    opt.zero_grad(set_to_none=True)
    F.mse_loss(model(x), y).backward()
    value = model[0].weight.grad.norm().item()
    opt.zero_grad(set_to_none=False)
    return value


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 2))
    for p in model.parameters():
        dist.broadcast(p.data, 0)
    bucket = Bucket(model.parameters())
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    g = torch.Generator().manual_seed(100 + rank)
    w = torch.randn(16, 2, generator=torch.Generator().manual_seed(1)) / 4
    for step in range(STEPS):
        x = torch.randn(BATCH, 16, generator=g)
        y = torch.tanh(2 * x @ w) + 0.1 * torch.randn(BATCH, 2, generator=g)
        if step == 60 and rank == 1:
            print(f"rank {rank} step {step} sensitivity {sensitivity(model, opt, x, y):.4f}", flush=True)
        bucket.zero()
        opt.zero_grad(set_to_none=False)
        loss = F.mse_loss(model(x), y)
        loss.backward()
        bucket.average()
        opt.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    print(f"final rank={rank} sum={sum(p.double().sum().item() for p in model.parameters()):.9f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
