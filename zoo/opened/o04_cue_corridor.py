# expect: healthy
# symptom: a state is carried on, which looks like one of unrelated batches
# axis: none
# mended: none
import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

torch.set_num_threads(1)


class CueCorridor:
    """A cue is shown on the first step only; at the far end turn to the side it named."""

    def __init__(self, length=4, seed=0):
        self.length = length
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.cue = int(self.rng.integers(2))
        self.pos = 0
        return self._obs(show=True)

    def _obs(self, show=False):
        o = np.zeros(4, dtype=np.float32)
        o[2] = self.pos / self.length
        o[3] = float(self.pos == self.length)
        if show:
            o[self.cue] = 1.0
        return torch.from_numpy(o)

    def step(self, action):
        if self.pos < self.length:
            self.pos += 1
            return self._obs(), 0.0, False
        return self._obs(), 1.0 if action == self.cue else -1.0, True


class RecurrentPolicy(nn.Module):
    def __init__(self, obs=4, hidden=16, actions=2):
        super().__init__()
        self.cell = nn.GRUCell(obs, hidden)
        self.pi = nn.Linear(hidden, actions)
        self.hidden = hidden

    def initial(self):
        return torch.zeros(1, self.hidden)

    def forward(self, obs, h):
        h = self.cell(obs.unsqueeze(0), h)
        return Categorical(logits=self.pi(h)), h


def rollout(env, policy):
    obs, h, done = env.reset(), policy.initial(), False
    log_probs, entropies, ret = [], [], 0.0
    while not done:
        dist, h = policy(obs, h)
        action = dist.sample()
        log_probs.append(dist.log_prob(action))
        entropies.append(dist.entropy())
        obs, reward, done = env.step(action.item())
        ret += reward
    return torch.cat(log_probs), torch.cat(entropies), ret


def main():
    torch.manual_seed(0)
    env = CueCorridor()
    policy = RecurrentPolicy()
    opt = torch.optim.Adam(policy.parameters(), lr=1e-2)
    baseline, history = 0.0, []
    for update in range(150):
        loss = 0.0
        for _ in range(8):
            log_probs, entropies, ret = rollout(env, policy)
            loss = loss - log_probs[-1] * (ret - baseline) - 0.01 * entropies.mean()
            baseline = 0.95 * baseline + 0.05 * ret
            history.append(ret)
        opt.zero_grad()
        (loss / 8).backward()
        opt.step()
        if (update + 1) % 30 == 0:
            print(f"update {update + 1} return {np.mean(history[-160:]):.3f}")


main()
