# expect: healthy
# fault: none: two process groups on 4 ranks: ranks 0 and 1 train a small student, ranks 2 and 3 a wide teacher with other learning rate and optimizer; each group averages its own gradients by hand, the teachers send their logits to the students
# names: -
# onset_step: -
# within: -
# ranks: 4
# rank: -
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

STEPS, BATCH = 110, 32


def mlp(width):
    return nn.Sequential(nn.Linear(12, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4))


def average_gradients(model, group):
    n = dist.get_world_size(group)
    for p in model.parameters():
        dist.all_reduce(p.grad, group=group)
        p.grad /= n


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    students, teachers = dist.new_group([0, 1]), dist.new_group([2, 3])
    teaching = rank >= 2
    group = teachers if teaching else students
    torch.manual_seed(20 + teaching)
    model = mlp(96 if teaching else 24)
    for p in model.parameters():
        dist.broadcast(p.data, 2 if teaching else 0, group=group)
    if teaching:
        opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    else:
        opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    w = torch.randn(12, 4, generator=torch.Generator().manual_seed(4))
    g = torch.Generator().manual_seed(500 + rank % 2)  # a student and its teacher see the same rows
    for step in range(STEPS):
        x = torch.randn(BATCH, 12, generator=g)
        y = (x @ w + torch.randn(BATCH, 4, generator=g)).argmax(-1)
        logits = model(x)
        if teaching:
            loss = F.cross_entropy(logits, y)
            dist.send(logits.detach(), rank - 2)
        else:
            soft = torch.empty(BATCH, 4)
            dist.recv(soft, rank + 2)
            kl = F.kl_div(F.log_softmax(logits, -1), F.log_softmax(soft, -1), reduction="batchmean", log_target=True)
            loss = 0.5 * F.cross_entropy(logits, y) + 0.5 * kl
        opt.zero_grad()
        loss.backward()
        average_gradients(model, group)
        opt.step()
        if rank in (0, 2) and step % 10 == 0:
            print(f"{'teacher' if teaching else 'student'} step {step} loss {loss.item():.4f}", flush=True)
    print(f"final rank={rank} sum={sum(p.double().sum().item() for p in model.parameters()):.9f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
