# expect: sick
# symptom: the recurrent net learns the short sequences; with the long ones at step 400 the loss explodes to inf and NaN
# axis: optimizer
# cause: clip_grad_norm_ is called before backward, when there are no gradients yet, so nothing is clipped and long sequences explode
# says: clip\w*.{0,100}(before|place|order|too early|earlier|no effect|ineffective|never|missing|absent|not (applied|active|used)|does nothing|after zero|wrong|without|empty|prior)|(no|without|missing|lack of|lacking|absent|ineffective|un)[ -]?(gradient |effective |any )?(norm )?clip\w*|explod\w+ gradient|gradient\w*.{0,20}explo
# onset_step: 401
# fix: clip between backward and the step
# mended: MENDED=1
import os

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(41)


def batch(n, length):
    """Two places are marked; the answer is the sum of the values there."""
    value = torch.rand(n, length)
    mark = torch.zeros(n, length)
    half = length // 2
    rows = torch.arange(n)
    a, b = torch.randint(0, half, (n,)), torch.randint(half, length, (n,))
    mark[rows, a] = 1
    mark[rows, b] = 1
    return torch.stack([value, mark], -1), value[rows, a] + value[rows, b]


class Adder(nn.Module):
    def __init__(self, hidden=40):
        super().__init__()
        self.rnn = nn.RNN(2, hidden, nonlinearity="relu", batch_first=True)
        self.out = nn.Linear(hidden, 1)
        with torch.no_grad():
            self.rnn.weight_hh_l0.copy_(torch.eye(hidden))
            self.rnn.weight_ih_l0.normal_(0, 0.1)
            self.rnn.bias_hh_l0.zero_()
            self.rnn.bias_ih_l0.zero_()

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.out(h[:, -1]).squeeze(-1)


def length_at(step):
    return 6 if step <= 250 else 8 if step <= 400 else 24


class Loop:
    def __init__(self):
        self.model = Adder()
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.005, momentum=0.9)

    def clip(self):
        return nn.utils.clip_grad_norm_(self.model.parameters(), 0.2)

    def step(self, x, y):
        self.opt.zero_grad()
        loss = (self.model(x) - y).pow(2).mean()
        if os.environ.get("MENDED") == "1":
            loss.backward()
            self.clip()
        else:
            self.clip()
            loss.backward()
        self.opt.step()
        return loss.item()


def main():
    loop = Loop()
    for step in range(1, 521):
        x, y = batch(48, length_at(step))
        loss = loop.step(x, y)
        if step % 20 == 0 or 400 < step < 408:
            print(f"step {step} length {x.shape[1]} loss {loss:.5f}")


if __name__ == "__main__":
    main()
