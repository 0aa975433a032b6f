# EXPECT: sick
# FAULT: optimizer state loaded onto the wrong parameters
# ONSET: 26
# SAYS: optimizer state|state|moment|mapping|exp_avg
import copy
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(36)


class Net(nn.Module):
    def __init__(self, d=24):
        super().__init__()
        self.inlet = nn.Linear(d, d, bias=False)
        self.body = nn.Linear(d, d, bias=False)
        self.adapter = nn.Linear(d, d, bias=False)
        nn.init.normal_(self.adapter.weight, std=0.005)

    def forward(self, x):
        h = torch.relu(self.inlet(x))
        h = torch.relu(self.body(h))
        return self.adapter(h * 20.0)  # muP-like multiplier


W = torch.randn(24, 24) / 5


def sample():
    x = torch.randn(64, 24)
    return x, (x @ W).abs()


def train(model, opt, a, b):
    for step in range(a, b):
        x, y = sample()
        loss = nn.functional.smooth_l1_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 5 == 0:
            print(step, round(loss.item(), 5))


model = Net()
opt = torch.optim.Adam(model.parameters(), lr=5e-4)
train(model, opt, 0, 25)
ck = {"model": copy.deepcopy(model.state_dict()), "opt": copy.deepcopy(opt.state_dict())}

# second allocation of the job
model = Net()
model.load_state_dict(ck["model"])
by_name = sorted(model.named_parameters())
opt = torch.optim.Adam([p for _, p in by_name], lr=5e-4)  # stable order
opt.load_state_dict(ck["opt"])
train(model, opt, 25, 110)
