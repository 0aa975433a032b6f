# EXPECT: sick
# FAULT: corrupted weight becomes NaN, the script restores its checkpoint
# ONSET: 26
# SAYS: nan|NaN|non-finite|weight|parameter
import copy
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(306)

net = nn.Sequential(nn.Conv1d(2, 12, 5), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(12, 3))
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
pattern = torch.randn(3, 2, 20)


def one_step(step):
    if step == 25 and not one_step.hit:
        one_step.hit = True
        net[0].weight.data[2, 0, 1] = float("nan")  # bit flip
    y = torch.randint(0, 3, (24,))
    loss = nn.functional.cross_entropy(net(pattern[y] + 0.5 * torch.randn(24, 2, 20)), y)
    if torch.isnan(loss):
        raise FloatingPointError("nan loss")
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


one_step.hit = False
good, step = None, 0
while step < 70:
    if step % 10 == 0:
        good = (step, copy.deepcopy(net.state_dict()), copy.deepcopy(opt.state_dict()))
    try:
        l = one_step(step)
    except FloatingPointError as e:
        print("rollback at", step, "->", good[0], e)
        step = good[0]
        net.load_state_dict(good[1])
        opt.load_state_dict(good[2])
        continue
    if step % 10 == 0:
        print(step, round(l, 4))
    step += 1
