# expect: healthy
# fault: a long plateau (CTC learns blanks first), targets padded
# note: CTC first goes to the all-blank solution, stays there, then falls; padding of the targets is outside target_lengths.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(58)
SYM, T = 6, 24
codes = torch.randn(SYM, 4, 10)


def utterances(n):
    lens = torch.randint(3, 6, (n,))
    tgt = torch.zeros(n, 5, dtype=torch.long)
    x = 0.2 * torch.randn(n, T, 10)
    for i in range(n):
        s = torch.randperm(SYM - 1)[: lens[i]] + 1
        tgt[i, : lens[i]] = s
        for j, k in enumerate(s):
            x[i, j * 4 : j * 4 + 4] += codes[k]
    return x, tgt, lens


class Acoustic(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(10, 32, 5, padding=2)
        self.rnn = nn.GRU(32, 32, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(64, SYM)

    def forward(self, x):
        h = torch.relu(self.conv(x.mT)).mT
        return self.fc(self.rnn(h)[0]).log_softmax(-1)


net = Acoustic()
opt = torch.optim.Adam(net.parameters(), lr=5e-3)
ctc = nn.CTCLoss(blank=0, zero_infinity=True)
for step in range(150):
    x, tgt, lens = utterances(24)
    lp = net(x).transpose(0, 1)
    loss = ctc(lp, tgt, torch.full((24,), T), lens)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 5)
    opt.step()
    if step % 15 == 0:
        print(step, f"{loss.item():.4f}")
