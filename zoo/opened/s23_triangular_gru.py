# expect: sick
# symptom: loss falls, leaps up from about step 20 and swings up and down with each cycle of the rate for the whole run
# axis: schedule
# cause: the cyclic schedule swings the rate up to 1.0, hundreds of times what the model stands
# says: (?i)cycl|schedul|\bpeak|max_lr|triang
# onset_step: 20
# fix: max_lr 0.01 instead of 1.0
# mended: MENDED=1 python s23_triangular_gru.py
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(24)


class Brackets(Dataset):
    """Is the sum of the marks positive at the end?"""

    def __init__(self, n, t=14):
        g = torch.Generator().manual_seed(12)
        self.seq = torch.randint(0, 3, (n, t), generator=g)
        self.lab = (self.seq - 1).sum(1).sign().long() + 1

    def __len__(self):
        return len(self.seq)

    def __getitem__(self, i):
        return self.seq[i], self.lab[i]


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(3, 12)
        self.gru = nn.GRU(12, 32, batch_first=True)
        self.fc = nn.Linear(32, 3)

    def forward(self, s):
        return self.fc(self.gru(self.emb(s))[1][0])


top = 0.01 if os.environ.get("MENDED") == "1" else 1.0
net = Counter()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
sched = torch.optim.lr_scheduler.LambdaLR(
    opt, lambda s: 1.0 if s < 10 else 1 + (top / 1e-3 - 1) * (1 - abs(((s - 10) % 40) / 20 - 1)) ** 3
)
for step, (s, y) in enumerate(DataLoader(Brackets(64 * 260), batch_size=64, shuffle=True), 1):
    loss = nn.functional.cross_entropy(net(s), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f} rate {sched.get_last_lr()[0]:.4f}")
