# expect: healthy
# symptom: none (clipped inside the closure, on accumulated gradients)
# axis: none
# mended: none
# Running sum with a plain tanh RNN: at each place, the sum of the marked numbers so far.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(21)
g = torch.Generator().manual_seed(22)

SEQ = 50
BATCH = 32
HID = 64


def draw(n):
    vals = torch.rand(n, SEQ, generator=g)
    marks = (torch.rand(n, SEQ, generator=g) < 0.2).float()
    total = (vals * marks).cumsum(1) / 2
    return torch.stack([vals, marks], dim=-1), total


class Adder(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(2, HID, nonlinearity="tanh", batch_first=True)
        self.read = nn.Linear(HID, 1)
        nn.init.eye_(self.rnn.weight_hh_l0)
        nn.init.normal_(self.rnn.weight_ih_l0, std=0.1)
        nn.init.zeros_(self.rnn.bias_hh_l0)
        nn.init.zeros_(self.rnn.bias_ih_l0)

    def forward(self, x):
        out, _ = self.rnn(x)
        return self.read(out).squeeze(-1)


net = Adder()
opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
mse = nn.MSELoss()


def closure():
    opt.zero_grad()
    total = 0.0
    for part in range(2):
        x, y = draw(BATCH // 2)
        loss = mse(net(x), y) / 2
        loss.backward()
        total += loss.item()
    nn.utils.clip_grad_norm_(net.parameters(), max_norm=0.25)
    return total


for step in range(450):
    value = opt.step(closure)
    if step % 25 == 0:
        print("step", step, "mse", value)

with torch.no_grad():
    x, y = draw(512)
    print("test mse", mse(net(x), y).item(), "variance of target", y.var().item())
