# expect: sick
# symptom: NaN policy at step 19, just when the mean reward reaches its maximum
# axis: loss
# cause: advantages are divided by the standard deviation of the returns, which is 0 once all episodes return the same
# says: (?i)(\bstd\b|standard deviation|deviation|advantage).{0,80}(\b0\b(?!\.)|zero|\beps|same|constant|equal)|(zero|0 ?/ ?0).{0,60}(std|deviation)|division by (0|zero)
# onset_step: 19
# fix: eps 1e-8 in the denominator of the advantage
# mended: MENDED=1 python s22_keycode_reinforce.py
import os

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(23)
EPS = 1e-8 if os.environ.get("MENDED") == "1" else 0.0


class Lock:
    """The digit shown has to be typed; a batch of episodes at a time."""

    def __init__(self, n=48, seed=2):
        self.n, self.rng = n, torch.Generator().manual_seed(seed)

    def reset(self):
        self.digit = torch.randint(0, 4, (self.n,), generator=self.rng)
        return nn.functional.one_hot(self.digit, 4).float()

    def step(self, action):
        return (action == (self.digit + 1) % 4).float()


policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 4))
opt = torch.optim.Adam(policy.parameters(), lr=2.6e-2)
env = Lock()
for update in range(1, 201):
    obs = env.reset()
    logp = policy(obs).log_softmax(-1)
    action = torch.multinomial(torch.nan_to_num(logp.detach().exp(), nan=0.25), 1).squeeze(1)
    reward = env.step(action)
    adv = (reward - reward.mean()) / (reward.std() + EPS)
    loss = -(adv * logp.gather(1, action[:, None]).squeeze(1)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if update % 5 == 0:
        print(f"update {update} reward {reward.mean().item():.3f} loss {loss.item():.4f}")
