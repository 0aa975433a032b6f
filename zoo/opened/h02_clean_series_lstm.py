# expect: healthy
# symptom: resembles a target leak: the loss falls to almost 0
# note: the series is deterministic (two sines without noise), so almost 0 is right; the window ends before the target
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(11)
W = 24


class Windows(Dataset):
    def __init__(self, n):
        t = torch.arange(n, dtype=torch.float32)
        self.s = torch.sin(2 * math.pi * t / 24) + 0.4 * torch.sin(2 * math.pi * t / 60)

    def __len__(self):
        return len(self.s) - W

    def __getitem__(self, i):
        return self.s[i : i + W, None], self.s[i + W]


rnn, head = nn.LSTM(1, 24, batch_first=True), nn.Linear(24, 1)
opt = torch.optim.Adam([*rnn.parameters(), *head.parameters()], lr=5e-3)
for step, (x, y) in enumerate(DataLoader(Windows(32 * 250), batch_size=32, shuffle=True), 1):
    loss = nn.functional.mse_loss(head(rnn(x)[0][:, -1]).squeeze(1), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 25 == 0:
        print(f"step={step} mse={loss.item():.6f}")
