# expect: healthy
# symptom: resembles unmasked terminal states: mean Q climbs for hundreds of steps
# note: it climbs to the true mean return (about 4) and stops; terminal states are masked
import copy
import random
from collections import deque

import torch
from torch import nn

torch.set_num_threads(1)
random.seed(1)
torch.manual_seed(1)
q = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
slow = copy.deepcopy(q)
opt = torch.optim.Adam(q.parameters(), lr=1e-2)
buf, pos, t, step = deque(maxlen=3000), 0, 0, 0
while step < 800:
    obs = [pos / 8, t / 8]
    a = random.randint(0, 1) if random.random() < 0.3 else int(q(torch.tensor(obs)).argmax())
    pos, t = max(0, pos + (1 if a else -1)), t + 1
    end = t == 8
    buf.append((obs, a, float(a), [pos / 8, t / 8], float(end)))
    if end:
        pos, t = 0, 0
    if len(buf) < 64:
        continue
    s, act, r, s2, done = (torch.tensor(c, dtype=torch.float32) for c in zip(*random.sample(buf, 48)))
    with torch.no_grad():
        best = q(s2).argmax(1, keepdim=True)
        target = r + 0.97 * slow(s2).gather(1, best).squeeze(1) * (1 - done)
    pred = q(s).gather(1, act.long()[:, None]).squeeze(1)
    loss = nn.functional.mse_loss(pred, target)
    opt.zero_grad()
    loss.backward()
    opt.step()
    step += 1
    if step % 5 == 0:
        slow.load_state_dict(q.state_dict())
    if step % 100 == 0:
        print(f"step {step} loss {loss.item():.4f} mean q {pred.mean().item():.2f}")
