# expect: sick
# fault: pipeline of two stages: from step 60 the label reader on rank 1 is one row ahead of the inputs on rank 0 (it skipped a bad record), so the labels no longer belong to the inputs and rank 1's loss jumps and stays high
# names: (?is)(?=.*\b(?:ranks?|process(?:es)?|workers?)[\s:=#_(\[-]*(?:\d+(?:\s*(?:,|and|&|vs\.?|from|to|/|-)\s*)+)*1\b)(?=.*(?:loss|label|target|error))(?=.*(?:jump|ris|rose|spike|increas|higher|worse|grew|grow|up from|times|shift|mismatch|misalign|degrad|regress|diverg|surge|wrong|too (?:high|large)|outlier|unusual))
# onset_step: 60
# within: 20
# ranks: 2
# rank: 1
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
STEPS, BATCH, WIDTH, CLASSES = 150, 32, 64, 8
FEATURES, RECORDS = 12, 160 * 32


class Front(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())

    def forward(self, x):
        return self.net(x)


class Back(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES))

    def forward(self, h):
        return self.net(h)


def table():
    g = torch.Generator().manual_seed(12)
    centres = 2 * torch.randn(CLASSES, FEATURES, generator=g)
    y = torch.randint(0, CLASSES, (RECORDS,), generator=g)
    return centres[y] + torch.randn(RECORDS, FEATURES, generator=g), y


class LabelReader:
    """Reads labels record by record; leaves out those whose checksum is wrong."""

    def __init__(self, labels, bad):
        self.labels, self.bad, self.at = labels, bad, 0

    def batch(self):
        rows = []
        while len(rows) < BATCH:
            if self.at not in self.bad:
                rows.append(self.labels[self.at])
            self.at += 1
        return torch.stack(rows)


def run_front(x):
    torch.manual_seed(1)
    stage = Front()
    opt = torch.optim.Adam(stage.parameters(), lr=2e-3)
    for step in range(STEPS):
        hidden = stage(x[step * BATCH : (step + 1) * BATCH])
        dist.send(hidden.detach(), 1)
        grad = torch.empty_like(hidden)
        dist.recv(grad, 1)
        opt.zero_grad()
        hidden.backward(grad)
        opt.step()


def run_back(y):
    torch.manual_seed(2)
    stage = Back()
    opt = torch.optim.Adam(stage.parameters(), lr=2e-3)
    reader = LabelReader(y, bad={60 * BATCH})
    for step in range(STEPS):
        hidden = torch.empty(BATCH, WIDTH)
        dist.recv(hidden, 0)
        hidden.requires_grad_(True)
        loss = F.cross_entropy(stage(hidden), reader.batch())
        opt.zero_grad()
        loss.backward()
        dist.send(hidden.grad, 0)
        opt.step()
        if step % 10 == 0 or 58 <= step <= 62:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=40))
    x, y = table()
    run_front(x) if dist.get_rank() == 0 else run_back(y)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
