# expect: healthy
# fault: none: a frozen backbone in eval mode (with BatchNorm buffers, requires_grad False) and a trained head, under DDP; the optimizer holds only the head
# names: -
# onset_step: -
# within: -
# ranks: 2
# rank: -
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Linear(16, 96), nn.BatchNorm1d(96), nn.ReLU(), nn.Linear(96, 96), nn.BatchNorm1d(96), nn.ReLU()
        )
        self.head = nn.Sequential(nn.Linear(96, 32), nn.ReLU(), nn.Linear(32, 4))
        self.backbone.requires_grad_(False)

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, x):
        with torch.no_grad():
            z = self.backbone(x)
        return self.head(z)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(44)
    x = torch.randn(2560, 16, generator=g)
    w = torch.randn(16, 4, generator=g)
    y = (x @ w + 0.5 * torch.randn(2560, 4, generator=g)).argmax(-1)
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data, seed=6)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    torch.manual_seed(12)
    net = Classifier()
    model = DDP(net)
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-3)
    step = 0
    model.train()
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            loss = F.cross_entropy(model(xb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if rank == 0 and step % 10 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
    print(f"final rank={rank} sum={sum(p.double().sum().item() for p in net.parameters()):.9f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
