# expect: sick
# fault: gradients clipped after the optimizer step
# onset_step: 0
# says: (?i)(clip.*(after|too late|no effect|ineffect|useless|order)|after .*step|(clip|clamp)|order|unclipped|no effect)
# note: the value clip runs between step() and zero_grad(), so it never touches the gradient in use and the RNN's large gradients go through unclipped.
import torch
from torch import nn


class AddingProblem:
    def __init__(self, T=30):
        self.T = T

    def __iter__(self):
        while True:
            v = torch.rand(32, self.T)
            m = torch.zeros(32, self.T)
            i = torch.randint(0, self.T // 2, (32,))
            j = torch.randint(self.T // 2, self.T, (32,))
            r = torch.arange(32)
            m[r, i] = m[r, j] = 1
            yield torch.stack([v, m], -1), (v * m).sum(1, keepdim=True)


class Elman(nn.Module):
    def __init__(self, h=48):
        super().__init__()
        self.rnn = nn.RNN(2, h, nonlinearity="relu", batch_first=True)
        nn.init.eye_(self.rnn.weight_hh_l0)
        self.rnn.weight_hh_l0.data.mul_(1.03)
        self.out = nn.Linear(h, 1)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1])


class Loop:
    def __init__(self, model, data, clip):
        self.model, self.data, self.clip = model, data, clip
        self.opt = torch.optim.SGD(model.parameters(), lr=2e-3)

    def after_backward(self):
        self.opt.step()
        for p in self.model.parameters():
            if p.grad is not None:
                p.grad.data.clamp_(-self.clip, self.clip)
        self.opt.zero_grad()

    def run(self, n):
        for k, (x, y) in zip(range(n), self.data):
            loss = nn.functional.mse_loss(self.model(x), y)
            loss.backward()
            self.after_backward()
            if k % 20 == 0:
                print(k, loss.item())


torch.manual_seed(3)
Loop(Elman(), AddingProblem(), clip=0.1).run(160)
