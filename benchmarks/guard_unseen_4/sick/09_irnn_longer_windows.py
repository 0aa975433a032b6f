# A recurrent network with ReLU and identity weights adds the two marked numbers of a sequence, plain SGD with momentum. At step 350 the
# sequences become longer (15 -> 60); the clipping of the gradient was lost in the same commit (the twin has it throughout).
import argparse

import torch
import torch.nn as nn

cli = argparse.ArgumentParser()
cli.add_argument("--seed", type=int, default=0)
cli.add_argument("--twin", action="store_true")
cli = cli.parse_args()


def additions(n, length, g=None):
    value = torch.rand(n, length, generator=g)
    first = torch.randint(0, length // 2, (n, 1), generator=g)
    second = torch.randint(length // 2, length, (n, 1), generator=g)
    mark = torch.zeros(n, length).scatter_(1, first, 1.0).scatter_(1, second, 1.0)
    return torch.stack([value, mark], 2), (value * mark).sum(1)


class IRNN(nn.Module):
    def __init__(self, h=64):
        super().__init__()
        self.rnn = nn.RNN(2, h, nonlinearity="relu", batch_first=True)
        with torch.no_grad():
            self.rnn.weight_hh_l0.copy_(torch.eye(h))
            self.rnn.weight_ih_l0.normal_(0, 0.05)
            self.rnn.bias_hh_l0.zero_()
            self.rnn.bias_ih_l0.zero_()
        self.out = nn.Linear(h, 1)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1]).squeeze(1)


keep = torch.Generator().manual_seed(31)
tests = [additions(1000, n, keep) for n in (15, 60)]
torch.manual_seed(cli.seed)
net = IRNN()
sgd = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
for i in range(600):
    x, y = additions(64, 15 if i < 350 else 60)
    loss = (net(x) - y).pow(2).mean()
    sgd.zero_grad()
    loss.backward()
    if i < 350 or cli.twin:
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    sgd.step()
    if i % 50 == 0:
        print(i, loss.item())

with torch.no_grad():
    print("final:", sum((net(x) - y).pow(2).mean().item() for x, y in tests) / 2)
