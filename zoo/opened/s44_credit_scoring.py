# expect: sick
# symptom: NaN loss at step 620
# axis: data
# cause: a NaN in the income column of one applicant's row
# says: (?i)\bnan\b.{0,40}(input|\brow|feature|data|column|income)|(input|row|feature|data|column)s?.{0,40}(\bnan\b|non-?finite)
# onset_step: 620
# fix: replace NaN features by 0 (the column's mean)
# mended: MENDED=1 python s44_credit_scoring.py
import os
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(51)
FILL = os.environ.get("MENDED") == "1"


@dataclass
class Applicant:
    income: float
    debt: float
    age: float
    late: float


class Applicants(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(31)
        self.people = [Applicant(*row) for row in torch.randn(n, 4, generator=g).tolist()]
        noise = torch.randn(n, generator=g).tolist()
        self.paid = [float(p.income - p.debt - 0.8 * p.late + 0.3 * e > 0) for p, e in zip(self.people, noise)]
        self.people[9913].income = float("nan")

    def __len__(self):
        return len(self.people)

    def __getitem__(self, i):
        p = self.people[i]
        x = torch.tensor([p.income, p.debt, p.age, p.late])
        if FILL:
            x = torch.nan_to_num(x, nan=0.0)
        return x, torch.tensor(self.paid[i])


class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 1)
        self.mlp = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x):
        return (self.lin(x) + self.mlp(x))[:, 0]


net, loss_fn = Wide(), nn.BCEWithLogitsLoss()
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
for i, (x, y) in enumerate(DataLoader(Applicants(16 * 760), batch_size=16)):
    opt.zero_grad()
    loss = loss_fn(net(x), y)
    loss.backward()
    opt.step()
    if (i + 1) % 40 == 0:
        print(f"[{i + 1}] loss={loss.item():.4f}")
