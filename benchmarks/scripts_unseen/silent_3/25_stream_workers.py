# expect: sick
# fault: data-loader workers with one seed give the same samples
# onset_step: 0
# says: (?i)(worker|seed|duplicat|same (sample|row|data|batch)|identical (sample|row|batch|data)|repeat)
# note: the IterableDataset makes its own Generator with a fixed seed in __iter__, so both workers yield the same stream and every batch comes twice.
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Simulator(IterableDataset):
    def __init__(self, length, seed=7):
        self.length, self.seed = length, seed

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        gen = torch.Generator()
        gen.manual_seed(self.seed)
        n = self.length // (info.num_workers if info else 1)
        for _ in range(n):
            theta = torch.rand(3, generator=gen) * 2 - 1
            t = torch.linspace(0, 1, 20)
            obs = theta[0] * torch.sin(6 * t) + theta[1] * t + theta[2] + 0.05 * torch.randn(20, generator=gen)
            yield obs, theta


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loader = DataLoader(Simulator(3200), batch_size=32, num_workers=2)
    net = nn.Sequential(nn.Linear(20, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 3))
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    for step, (obs, theta) in enumerate(loader):
        loss = nn.functional.mse_loss(net(obs), theta)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    print("final loss", loss.item())


if __name__ == "__main__":
    main()
