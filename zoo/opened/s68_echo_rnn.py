# expect: sick
# symptom: the loss falls for 200 steps on short sequences; when the sequences get longer it jumps a thousandfold and then stays on a plateau (the variance of the target)
# axis: model
# cause: the recurrent cell uses ReLU with a recurrent matrix of gain 1.5, so the hidden state grows exponentially with the length of the sequence
# says: recurren|hidden.?state|spectral|gain|eigen|orthogonal|init|relu.{0,40}(rnn|cell)|(rnn|cell).{0,40}(relu|unbounded|grow|explod)|unbounded activation|through time|state.{0,20}(grow|explod)
# onset_step: 200
# fix: initialise the recurrent matrix with gain 1.0 (or use the bounded tanh)
# mended: gain=1.0
import os

import torch
from torch import nn

torch.manual_seed(11)


def echo_task(batch, length, delay=3):
    """Repeat the signal as it was `delay` ticks ago, smoothed."""
    x = torch.randn(batch, length, 2)
    y = torch.zeros(batch, length, 1)
    mixed = torch.tanh(x[..., 0] * 0.8 + x[..., 1] * 0.4)
    y[:, delay:, 0] = mixed[:, :-delay]
    return x, y


class EchoNet(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        gain = 1.0 if os.environ.get("MENDED") == "1" else 1.5
        self.rnn = nn.RNN(2, hidden, nonlinearity="relu", batch_first=True)
        nn.init.orthogonal_(self.rnn.weight_hh_l0, gain=gain)
        self.read = nn.Linear(hidden, 1)

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.read(h)


net = EchoNet()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
mse = nn.MSELoss()
curriculum = [(200, 12), (200, 250)]
tick = 0
for steps, length in curriculum:
    for _ in range(steps):
        x, y = echo_task(16, length)
        loss = mse(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if tick % 20 == 0 or tick in (201, 205, 399):
            print(f"tick {tick:3d} length {length:3d} mse {loss.item():.5g}", flush=True)
        tick += 1
