# expect: sick
# symptom: four layers of 128 units fit the arm no better than a linear regression, and wider or deeper nets do not help
# axis: model
# cause: there is no activation between the linear layers, so the whole network is one linear map
# says: (no|without|missing|lacks?|absent).*(activation|non.?linear)|(activation|non.?linear).*(missing|absent|between|never|not)|linear (map|function|model)|collaps.*linear|purely linear
# onset_step: 0
# fix: an activation (ReLU, Tanh) between the layers
# mended: Tanh between the layers
import os
import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(22)
MENDED = os.environ.get("MENDED") == "1"


class Arm:
    """Two-link arm: angles, speeds and torques to the next angular accelerations."""

    m1, m2, l1, l2 = 1.0, 0.8, 1.0, 0.7

    def rollouts(self, n):
        q = torch.rand(n, 2) * 6.2832 - 3.1416
        dq, tau = torch.randn(n, 2) * 1.5, torch.randn(n, 2) * 3
        c2, s2 = q[:, 1].cos(), q[:, 1].sin()
        a = (self.m1 + self.m2) * self.l1**2 + self.m2 * self.l2**2 + 2 * self.m2 * self.l1 * self.l2 * c2
        b = self.m2 * self.l2**2 + self.m2 * self.l1 * self.l2 * c2
        d = self.m2 * self.l2**2
        h = self.m2 * self.l1 * self.l2 * s2
        r1 = tau[:, 0] + h * dq[:, 1] * (2 * dq[:, 0] + dq[:, 1]) - 5 * q[:, 0].sin()
        r2 = tau[:, 1] - h * dq[:, 0] ** 2
        det = a * d - b * b
        acc = torch.stack([(d * r1 - b * r2) / det, (a * r2 - b * r1) / det], 1)
        x = torch.cat([q.sin(), q.cos(), dq, tau], 1)
        return x, acc / 20


class DynamicsModel(nn.Module):
    def __init__(self, n_in=8, width=128, n_out=2):
        super().__init__()
        self.fc1 = nn.Linear(n_in, width)
        self.fc2 = nn.Linear(width, width)
        self.fc3 = nn.Linear(width, width)
        self.out = nn.Linear(width, n_out)

    def forward(self, x):
        if MENDED:
            x = torch.tanh(self.fc1(x))
            x = torch.tanh(self.fc2(x))
            x = torch.tanh(self.fc3(x))
        else:
            x = self.fc1(x)
            x = self.fc2(x)
            x = self.fc3(x)
        return self.out(x)


arm = Arm()
x, y = arm.rollouts(8000)
x_test, y_test = arm.rollouts(1000)
model = DynamicsModel()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
recent = []
for it in range(1, 401):
    idx = torch.randint(0, len(x), (64,))
    loss = (model(x[idx]) - y[idx]).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    recent.append(loss.item())
    if it % 80 == 0:
        with torch.no_grad():
            r2 = 1 - (model(x_test) - y_test).pow(2).mean() / y_test.var()
        print(f"iter {it} loss {np.mean(recent[-80:]):.4f} test R2 {r2.item():.3f}")
