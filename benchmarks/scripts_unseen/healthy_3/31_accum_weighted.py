# expect: healthy
# fault: several backward passes per step
# note: accumulation over micro-batches of different numbers of tokens, each loss summed and divided by the total of tokens of the step: right.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(48)
V = 32
rule = torch.randint(0, V, (V, 2))


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(V, 24)
        self.r = nn.LSTM(24, 40, batch_first=True)
        self.o = nn.Linear(40, V)

    def forward(self, x):
        return self.o(self.r(self.e(x))[0])


def micro():
    length = int(torch.randint(5, 25, ()))
    s = torch.randint(0, V, (6, 1))
    for _ in range(length):
        s = torch.cat([s, rule[s[:, -1], torch.randint(0, 2, (6,))][:, None]], 1)
    return s


model = LM()
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
ce = nn.CrossEntropyLoss(reduction="sum")
for step in range(100):
    micros = [micro() for _ in range(4)]
    tokens = sum(m[:, 1:].numel() for m in micros)
    opt.zero_grad()
    total = 0.0
    for m in micros:
        loss = ce(model(m[:, :-1]).reshape(-1, V), m[:, 1:].reshape(-1)) / tokens
        loss.backward()
        total += loss.item()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    if step % 10 == 0:
        print("step", step, "loss", round(total, 4))
