# expect: healthy
# fault: none: co-distillation: ranks 0,1 and ranks 2,3 train two models of the same class, names and shapes from different seeds; gradients are averaged by hand within each group only, the groups exchange logits
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


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    peers = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    team, seat = rank // 2, rank % 2
    torch.manual_seed(30 + team)
    model = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 4))
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    w = torch.randn(12, 4, generator=torch.Generator().manual_seed(4))
    g = torch.Generator().manual_seed(700 + seat)  # the two models are compared on the same rows
    for step in range(STEPS):
        x = torch.randn(BATCH, 12, generator=g)
        y = (x @ w + torch.randn(BATCH, 4, generator=g)).argmax(-1)
        logits = model(x)
        both = [torch.empty(BATCH, 4), torch.empty(BATCH, 4)]
        dist.all_gather(both, logits.detach(), group=peers[seat])
        other = both[1 - team]
        kl = F.kl_div(F.log_softmax(logits, -1), F.log_softmax(other, -1), reduction="batchmean", log_target=True)
        loss = F.cross_entropy(logits, y) + 0.3 * kl
        opt.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, group=groups[team])
            p.grad /= 2
        opt.step()
        if seat == 0 and step % 10 == 0:
            print(f"model {team} step {step} loss {loss.item():.4f}", flush=True)
    print(f"final rank={rank} sum={sum(p.double().sum().item() for p in model.parameters()):.9f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
