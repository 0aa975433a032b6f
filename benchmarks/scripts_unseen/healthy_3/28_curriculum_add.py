# expect: healthy
# fault: the loss jumps up at some steps
# note: a curriculum: the sequences get longer every 70 steps, each time the loss jumps and then falls again.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(38)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(3, 48, batch_first=True)
        self.out = nn.Linear(48, 1)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1])


def problem(n, length):
    v = torch.rand(n, length, 1) * 2 - 1
    flag = (torch.rand(n, length, 1) < 0.4).float()
    return torch.cat([v, flag, 1 - flag], 2), (v * flag).sum(1)


model = Counter()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
stages = [(70, 4), (70, 10), (70, 20)]
step = 0
for n_steps, length in stages:
    for _ in range(n_steps):
        x, y = problem(48, length)
        loss = (model(x) - y).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 14 == 0:
            print(f"step {step} length {length} loss {loss.item():.4f}")
        step += 1
