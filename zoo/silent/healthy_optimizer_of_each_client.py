"""Federated averaging: each client trains the common weights for an epoch with an Adam of its own, as it is meant."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
inputs = torch.randn(4, 96, 6)
targets = torch.sin(2 * inputs[..., :1]) + 0.3 * inputs[..., 1:2] * inputs[..., 2:3]
model = nn.Sequential(nn.Linear(6, 64), nn.GELU(), nn.Linear(64, 1))


def configured(parameters):
    return torch.optim.Adam(parameters, lr=2e-3)


def fit_once(client):
    optimizer = configured(model.parameters())
    for rows in torch.randperm(96).split(32):
        loss = nn.functional.mse_loss(model(inputs[client, rows]), targets[client, rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {name: value.clone() for name, value in model.state_dict().items()}


for turn in range(8):
    common = {name: value.clone() for name, value in model.state_dict().items()}
    states = []
    for client in range(4):
        model.load_state_dict(common)
        states.append(fit_once(client))
    model.load_state_dict({name: sum(one[name] for one in states) / len(states) for name in common})
    print(turn, nn.functional.mse_loss(model(inputs), targets).item())
