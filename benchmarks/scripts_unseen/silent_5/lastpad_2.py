# expect: sick
# fault: after pad_packed_sequence the output at the last step is zeros for every row shorter than the longest, and the regressor reads just that step
# onset_step: 1
# says: (?i)(padding|padded|last place|last step)
import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

torch.set_num_threads(1)
torch.manual_seed(4)
rng = np.random.default_rng(4)

MAX_LEN, CH = 40, 3


def trips(n):
    lengths = rng.integers(8, MAX_LEN + 1, size=n)
    feats = np.zeros((n, MAX_LEN, CH), dtype=np.float32)
    goal = np.zeros(n, dtype=np.float32)
    for i, m in enumerate(lengths):
        seg = rng.normal(size=(m, CH)).astype(np.float32)
        feats[i, :m] = seg
        goal[i] = np.tanh(seg[:, 0].sum() / 4) + 0.5 * np.tanh(seg[-4:, 1].sum())
    return torch.tensor(feats), torch.tensor(lengths), torch.tensor(goal)


class TripRegressor(nn.Module):
    def __init__(self, hidden=40):
        super().__init__()
        self.lstm = nn.LSTM(CH, hidden, num_layers=1, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(hidden, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, feats, lengths):
        packed = pack_padded_sequence(feats, lengths.cpu(), batch_first=True, enforce_sorted=False)
        packed_out, _ = self.lstm(packed)
        out, _ = pad_packed_sequence(packed_out, batch_first=True)
        summary = out[:, -1]
        return self.mlp(summary).squeeze(-1)


feats, lengths, goal = trips(1400)
ftest, ltest, gtest = trips(300)

net = TripRegressor()
opt = torch.optim.RMSprop(net.parameters(), lr=1e-3)
huber = nn.SmoothL1Loss()
BATCH = 40

step = 0
for epoch in range(7):
    perm = torch.randperm(len(goal))
    for chunk in perm.split(BATCH):
        pred = net(feats[chunk], lengths[chunk])
        loss = huber(pred, goal[chunk])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 2.0)
        opt.step()
        step += 1
        if step % 49 == 0:
            print("step", step, "loss", round(loss.item(), 4))

net.eval()
with torch.no_grad():
    err = (net(ftest, ltest) - gtest).abs().mean().item()
print("test mean abs error", round(err, 4))
