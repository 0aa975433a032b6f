# expect: sick
# symptom: loss leaps at step 620, when the second shard begins, to near ln 8 (2.08) and stays
# axis: data
# cause: in the second shard the labels are shifted by one frame against the inputs
# says: (?i)(label|target|frame|input)s?.{0,40}(shift|offset|misalign|\blag\b)|(shift|offset|misalign)\w*.{0,30}(label|target|frame|by one)|off by one
# onset_step: 620
# fix: lag 0 when the second shard's labels are cut
# mended: MENDED=1 python s55_phoneme_frames.py
import os

import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(62)
C, F, T = 8, 10, 8
PROTO = torch.randn(C, F, generator=torch.Generator().manual_seed(1))


class Shard(Dataset):
    def __init__(self, n, seed, lag):
        g = torch.Generator().manual_seed(seed)
        track = torch.randint(0, C, (n, T + 1), generator=g)
        self.frames = (PROTO[track] + 0.5 * torch.randn(n, T + 1, F, generator=g))[:, :T]
        self.labels = track[:, lag : T + lag]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.frames[i], self.labels[i]


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.fc = nn.LSTM(F, 20, batch_first=True), nn.Linear(20, C)

    def forward(self, x):
        return self.fc(self.lstm(x)[0])


lag = 0 if os.environ.get("MENDED") == "1" else 1
speech = ConcatDataset([Shard(16 * 619, 38, 0), Shard(16 * 220, 39, lag)])
net = Tagger()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for step, (x, y) in enumerate(DataLoader(speech, batch_size=16), 1):
    loss = nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 40 == 0 or 617 < step < 623:
        print(f"step {step} loss {loss.item():.4f}")
