# expect: sick
# fault: target network copied at every step and with a sign error of the discount, values run away
# onset_step: 20
# says: (?i)(loss|gradient|target|value|progress|spike|diverg|grow|explod)
# note: at step 20 the discount is "annealed" to 1/0.9 instead of 0.9 and the target is copied after every step; Q values grow without bound.
import random
import torch
from torch import nn

torch.set_num_threads(1)
random.seed(3)
torch.manual_seed(18)
S, A = 12, 3
P = torch.randint(0, S, (S, A))
R = torch.rand(S, A) * (torch.rand(S, A) < 0.3)
eye = torch.eye(S)


def net():
    return nn.Sequential(nn.Linear(S, 64), nn.ReLU(), nn.Linear(64, A))


q, tq = net(), net()
tq.load_state_dict(q.state_dict())
opt = torch.optim.Adam(q.parameters(), lr=5e-3)
for step in range(160):
    gamma, every = 0.8, 20
    if step >= 20:
        gamma, every = 1 / 0.9, 1
    s, a = torch.randint(0, S, (64,)), torch.randint(0, A, (64,))
    with torch.no_grad():
        y = R[s, a] + gamma * tq(eye[P[s, a]]).max(1).values
    loss = (q(eye[s]).gather(1, a[:, None]).squeeze(1) - y).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % every == 0:
        tq.load_state_dict(q.state_dict())
    if step % 10 == 0:
        print(f"{step} loss {loss.item():.5f} value {y.mean().item():.3f}")
