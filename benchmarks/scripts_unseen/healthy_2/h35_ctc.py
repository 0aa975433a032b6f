# expect: healthy
# fault: none
# note: CTC with a blank plateau at the start; log_softmax over classes of (T, N, C).
import torch
from torch import nn


class ASR(nn.Module):
    def __init__(self, f=8, C=6):
        super().__init__()
        self.r = nn.GRU(f, 48, bidirectional=True)
        self.o = nn.Linear(96, C)

    def forward(self, x):
        return self.o(self.r(x)[0]).log_softmax(2)


torch.manual_seed(35)
P = torch.randn(6, 8) * 2
m = ASR()
opt = torch.optim.Adam(m.parameters(), lr=4e-3)
ctc = nn.CTCLoss(blank=0, zero_infinity=True)
for s in range(140):
    y = torch.randint(1, 6, (16, 4))
    x = P[y.repeat_interleave(4, 1)].transpose(0, 1) + 0.4 * torch.randn(16, 16, 8)
    loss = ctc(m(x), y, torch.full((16,), 16), torch.full((16,), 4))
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(m.parameters(), 5.0)
    opt.step()
    if s % 14 == 0:
        print(s, round(loss.item(), 4))
