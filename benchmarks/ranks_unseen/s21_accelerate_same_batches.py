# expect: sick
# fault: Accelerate: the training DataLoader is not given to prepare() and its shuffle has the same seed on both ranks, so both ranks train on identical batches from the first step (no data parallelism)
# names: (?is)(?=.*(?:\branks?\b|process|replica))(?=.*(?:same|identical|duplicat|equal|repeat|redundan|not (?:sharded|split|distributed|partitioned)))(?=.*(?:batch|data|input|row|sample|example|loss|gradient|shard))
# onset_step: 0
# within: 20
# ranks: 2
import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
STEPS, BATCH, SIDE, CLASSES = 120, 24, 12, 4


class Shapes(Dataset):
    """Small grey pictures of bars and blobs."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.y = torch.randint(0, CLASSES, (n,), generator=g)
        self.x = 0.6 * torch.randn(n, 1, SIDE, SIDE, generator=g)
        at = torch.randint(2, SIDE - 3, (n,), generator=g)
        for i in range(n):
            a = at[i].item()
            if self.y[i] == 0:
                self.x[i, 0, a, :] += 1.0
            elif self.y[i] == 1:
                self.x[i, 0, :, a] += 1.0
            elif self.y[i] == 2:
                self.x[i, 0, a - 2 : a + 2, a - 2 : a + 2] += 1.0

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.head = nn.Linear(16 * 9, CLASSES)

    def forward(self, x):
        x = F.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = F.max_pool2d(torch.relu(self.conv2(x)), 2)
        return self.head(x.flatten(1))


def endless(loader):
    while True:
        yield from loader


def main():
    accelerator = Accelerator(cpu=True)
    set_seed(42)
    model = ConvNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 20))
    loader = DataLoader(Shapes(1440, seed=1), batch_size=BATCH, shuffle=True, drop_last=True)
    # the loader stays as it is: the batches are moved to the device by hand below
    model, optimizer = accelerator.prepare(model, optimizer)
    stream = endless(loader)
    for step in range(STEPS):
        x, y = (t.to(accelerator.device) for t in next(stream))
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 20 == 0:
            rank = accelerator.process_index
            print(f"rank {rank} step {step} loss {loss.item():.4f} first labels {y[:6].tolist()}", flush=True)
    accelerator.wait_for_everyone()
    accelerator.end_training()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
