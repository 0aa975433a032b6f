# expect: sick
# symptom: the total loss goes to practically zero, yet accuracy and regression error stop improving early
# axis: loss
# cause: the learned task weights exp(-s) have no + s term to hold them, so the log-variances grow without bound and drive both losses' weights (and gradients) to zero instead of learning the tasks
# says: (log.?var\w*|task weight|uncertainty|exp\(-|learn\w* weight|loss weight|weighting|log_?scale|\bs\b|precision).{0,150}(regulari\w*|unbounded|without bound|grow\w*|miss\w*|no penalt\w*|penalt\w*|zero|vanish\w*|shrink\w*|trivial\w*|collapse\w*|drift\w*|minimi\w*|log.?term|\+ ?s)|(regulari\w*|penalt\w*|\+ ?s\b|log.?term).{0,100}(log.?var\w*|uncertainty|task weight|weighting)
# onset_step: 0
# fix: add the sum of the log-variances to the loss
# mended: yes
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"
SHAPES = ("sine", "square", "saw", "pulse")


class Waveforms(Dataset):
    """Short noisy traces; label is the waveform, second target the (log) period."""

    def __init__(self, n, length=48, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.kind = torch.randint(len(SHAPES), (n,), generator=g)
        self.logp = torch.rand(n, generator=g) * 1.6 + 1.8
        phase = torch.rand(n, 1, generator=g)
        cyc = (torch.arange(length) / self.logp.exp()[:, None] + phase) % 1
        bank = torch.stack(
            [torch.sin(2 * torch.pi * cyc), torch.sign(cyc - 0.5), 2 * cyc - 1, (cyc < 0.2).float() * 2 - 0.4]
        )
        clean = bank[self.kind, torch.arange(n)]
        amp = 0.5 + torch.rand(n, 1, generator=g)
        self.x = (amp * clean + 0.35 * torch.randn(n, length, generator=g)).unsqueeze(-1)

    def __len__(self):
        return len(self.kind)

    def __getitem__(self, i):
        return self.x[i], self.kind[i], self.logp[i]


class TaskBalancer(nn.Module):
    """Homoscedastic weighting of several losses."""

    def __init__(self, names):
        super().__init__()
        self.names = names
        self.log_var = nn.Parameter(torch.zeros(len(names)))

    def forward(self, losses):
        stacked = torch.stack([losses[n] for n in self.names])
        total = (torch.exp(-self.log_var) * stacked).sum()
        if MENDED:
            total = total + self.log_var.sum()
        return total


class Recogniser(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.front = nn.Conv1d(1, 24, 5, stride=2, padding=2)
        self.rnn = nn.GRU(24, hidden, batch_first=True)
        self.kind = nn.Linear(hidden, len(SHAPES))
        self.period = nn.Linear(hidden, 1)

    def forward(self, x):
        z = F.relu(self.front(x.transpose(1, 2))).transpose(1, 2)
        out, _ = self.rnn(z)
        h = out.mean(1)
        return self.kind(h), self.period(h).squeeze(-1)


@torch.no_grad()
def validate(model, data):
    model.eval()
    kind, period = model(data.x)
    acc = (kind.argmax(-1) == data.kind).float().mean().item()
    mae = (period - data.logp).abs().mean().item()
    model.train()
    return acc, mae


def main():
    torch.manual_seed(21)
    train, val = Waveforms(3600, seed=1), Waveforms(800, seed=2)
    loader = DataLoader(train, batch_size=48, shuffle=True, drop_last=True)
    model, balancer = Recogniser(), TaskBalancer(("kind", "period"))
    opt = torch.optim.Adam(
        [
            {"params": model.parameters(), "lr": 3e-3},
            {"params": balancer.parameters(), "lr": 5e-2},
        ]
    )
    step = 0
    for epoch in range(6):
        for x, kind, logp in loader:
            pk, pp = model(x)
            loss = balancer({"kind": F.cross_entropy(pk, kind), "period": F.mse_loss(pp, logp)})
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            if step % 25 == 0:
                print(f"step {step} loss {loss.item():.4f}")
            step += 1
        acc, mae = validate(model, val)
        print(f"epoch {epoch} val_acc {acc:.3f} val_period_mae {mae:.3f}")


if __name__ == "__main__":
    main()
