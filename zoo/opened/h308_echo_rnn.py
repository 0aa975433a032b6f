# expect: healthy
# symptom: the gradient norm is clipped at every single step, often by a factor of ten or more; resembles exploding gradients
# axis: optimizer
# cause: none: the loss is a sum over the sequence, so its norm is large and the tight clipping acts as a normalised step; the loss falls
# says: (healthy|nothing (is )?wrong|no fault|no cause)
# onset_step: 0
# fix: none
# mended: the same
import math

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(108)


def echo(n, length=24, symbols=6, delay=2):
    x = torch.randint(0, symbols, (n, length))
    y = torch.zeros_like(x)
    y[:, delay:] = x[:, :-delay]
    lost = torch.rand(y.shape) < 0.15
    y[lost] = torch.randint(0, symbols, (int(lost.sum()),))
    return x, y  # the line loses some symbols


class EchoNet(nn.Module):
    def __init__(self, symbols=6, hidden=64):
        super().__init__()
        self.emb = nn.Embedding(symbols, 16)
        self.rnn = nn.LSTM(16, hidden, batch_first=True)
        self.out = nn.Linear(hidden, symbols)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


def main():
    net = EchoNet()
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    total, clipped = 400, 0
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: 0.5 * (1 + math.cos(math.pi * s / total)) + 0.02)
    for step in range(1, total + 1):
        x, y = echo(32)
        per_row = F.cross_entropy(net(x).transpose(1, 2), y, reduction="none").sum(1)
        loss = per_row.mean()
        opt.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 0.25)
        clipped += int(norm > 0.25)
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f} norm {norm:.2f} clipped {clipped}/{step}")


if __name__ == "__main__":
    main()
