# expect: sick
# fault: data parallel by hand seeds each rank with 1234 + rank before the model is built and never broadcasts: the gradients are averaged, but the replicas differ from the start
# names: (?is)(parameters?|weights?|replicas?|encoder|head|initiali[sz]).{0,120}(differ|diverge|disagree|apart|not equal|unequal|mismatch|not broadcast|not the same|never the same)
# onset_step: 0
# within: 5
# ranks: 2
# rank: -
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

STEPS, BATCH = 120, 32


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(10, 40), nn.SiLU(), nn.Linear(40, 40), nn.SiLU())
        self.head = nn.Linear(40, 1)

    def forward(self, x):
        return self.head(self.encoder(x)).squeeze(-1)


def average_gradients(model):
    world = dist.get_world_size()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1234 + rank)
    model = Net()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    w = torch.randn(10, generator=torch.Generator().manual_seed(77)) / 10**0.5
    for step in range(STEPS):
        x = torch.randn(BATCH, 10)
        y = torch.sin(2 * x @ w) + 0.05 * torch.randn(BATCH)
        opt.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        average_gradients(model)
        opt.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    print(f"final rank={rank} sum={sum(p.double().sum().item() for p in model.parameters()):.9f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
