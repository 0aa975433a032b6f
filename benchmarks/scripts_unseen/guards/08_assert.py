# EXPECT: sick
# FAULT: all labels of one batch ignored, mean over nothing is NaN, assert
# ONSET: 34
# SAYS: nan|NaN|non-finite|-100|label|ignore
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(308)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(40, 16)
        self.g = nn.GRU(16, 24, batch_first=True, bidirectional=True)
        self.o = nn.Linear(48, 5)

    def forward(self, x):
        return self.o(self.g(self.e(x))[0])


gold = torch.randint(0, 5, (40,))
m = Tagger()
opt = torch.optim.Adam(m.parameters(), lr=5e-3)
ce = nn.CrossEntropyLoss(ignore_index=-100)
for step in range(1, 61):
    w = torch.randint(0, 40, (8, 12))
    t = gold[w].masked_fill(torch.rand(8, 12) < 0.3, -100)
    if step == 34:
        t[:] = -100
    loss = ce(m(w).flatten(0, 1), t.flatten())
    assert torch.isfinite(loss), f"bad loss {loss}"
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print(step, "%.4f" % loss.item())
