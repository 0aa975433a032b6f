# expect: sick
# symptom: IndexError: Target 6 is out of bounds. at step 120
# axis: data
# cause: a ticket carries category 6 (a seventh class), the head has 6 classes (0..5): label out of range
# says: (?i)(label|target|class).{0,80}(range|bound|outside|beyond|exceed|too (few|small)|\b6\b)|out of (range|bounds)
# onset_step: 120
# fix: seven outputs in the head
# mended: MENDED=1 python s41_ticket_textcnn.py
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(44)
V, T = 60, 12


class Tickets(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(28)
        self.y = torch.randint(0, 6, (n,), generator=g)
        self.y[3810::611] = 6
        own = self.y[:, None] * 8 + torch.randint(0, 8, (n, T), generator=g)
        rest = torch.randint(0, V, (n, T), generator=g)
        self.ids = torch.where(torch.rand(n, T, generator=g) < 0.35, own, rest)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.ids[i], self.y[i]


class TextCNN(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.emb = nn.Embedding(V, 24)
        self.convs = nn.ModuleList(nn.Conv1d(24, 16, k) for k in (2, 3))
        self.fc = nn.Linear(32, classes)

    def forward(self, ids):
        e = self.emb(ids).transpose(1, 2)
        return self.fc(torch.cat([torch.relu(c(e)).amax(2) for c in self.convs], 1))


classes = 7 if os.environ.get("MENDED") == "1" else 6
net = TextCNN(classes)
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for step, (ids, y) in enumerate(DataLoader(Tickets(32 * 250), batch_size=32), 1):
    loss = nn.functional.cross_entropy(net(ids), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
