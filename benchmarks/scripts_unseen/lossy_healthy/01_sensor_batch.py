# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(201)

w = torch.randn(12, 3) / 3
net = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)


def read_sensors(step):
    raw = torch.randn(64, 12)
    y = torch.tanh(raw @ w)
    return raw, y


for step in range(160):
    x, y = read_sensors(step)
    loss = nn.functional.smooth_l1_loss(net(x), y)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 5.0)
    opt.step()
    if step % 10 == 0 or 58 < step < 66:
        print(step, round(loss.item(), 5))
