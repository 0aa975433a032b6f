"""The network and its training loop."""

import torch

from .data import WIDTH

torch.set_num_threads(1)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, 1))

    def forward(self, x):
        return self.layers(x)


def train(net, rows, epochs):
    opt = torch.optim.Adam(net.parameters(), lr=0.01)
    losses = []
    for _ in range(epochs):
        for x, y in rows:
            loss = torch.nn.functional.mse_loss(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
    return losses
