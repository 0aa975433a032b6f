# expect: healthy
# cause: none, a curriculum of longer and longer sums makes the training loss jump up at each stage
import torch
from torch import nn

torch.manual_seed(190)
DIGITS = 10
STAGES = [2, 3, 4, 6]


def sums(n, length):
    """the running sum of the digits modulo 10 after each digit"""
    x = torch.randint(0, DIGITS, (n, length))
    return x, x.cumsum(1) % DIGITS


class Adder(nn.Module):
    def __init__(self, d=96):
        super().__init__()
        self.emb = nn.Embedding(DIGITS, d)
        self.cell = nn.GRUCell(d, d)
        self.out = nn.Linear(d, DIGITS)

    def forward(self, x):
        h = torch.zeros(x.shape[0], self.cell.hidden_size)
        steps = []
        for t in range(x.shape[1]):
            h = self.cell(self.emb(x[:, t]), h)
            steps.append(self.out(h))
        return torch.stack(steps, 1)


net = Adder()
opt = torch.optim.Adam(net.parameters(), lr=4e-3)
total = 0
for length in STAGES:
    for k in range(110):
        x, y = sums(96, length)
        logits = net(x)
        loss = nn.functional.cross_entropy(logits[:, -1], y[:, -1])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        total += 1
        if k in (0, 30, 70, 109):
            print(f"step {total} length {length} loss {loss.item():.4f}")
with torch.no_grad():
    for length in STAGES:
        x, y = sums(500, length)
        print("length", length, "right", (net(x)[:, -1].argmax(-1) == y[:, -1]).float().mean().item())
