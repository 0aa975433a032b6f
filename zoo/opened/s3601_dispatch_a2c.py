# expect: sick
# symptom: returns climb for a while, then the total loss turns NaN from one update to the next and stays NaN
# axis: loss
# cause: the entropy bonus multiplies p=0 by log p=-inf for actions masked with -inf, which gives NaN
# says: (?<!cross.)entropy|0 ?(\*|x|times) ?-?inf|\bp ?\*? ?log ?p\b|(mask|invalid).{0,50}(-|minus|negative) ?inf
# onset_step: 20
# fix: mask the invalid actions with a large finite negative number such as -1e9 instead of -inf
# mended: the script applies that change if the environment has MENDED=1
"""Advantage actor-critic for dispatching jobs to machines with limited slots."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(11)
MENDED = os.environ.get("MENDED") == "1"

N_ENV, N_MACHINE, N_JOB, SLOTS = 48, 6, 8, 3
UPDATES = 320
GAMMA, VALUE_COEF, ENT_COEF = 0.95, 0.5, 0.01
MASK_VALUE = -1e9 if MENDED else float("-inf")


class DispatchEnv:
    """A batch of shops.  Every tick one job arrives; it must go to a machine with a free slot."""

    def __init__(self, n_env):
        self.n_env = n_env
        gen = torch.Generator().manual_seed(5)
        self.value = torch.rand(N_JOB, N_MACHINE, generator=gen) ** 2

    def reset(self):
        self.free = torch.full((self.n_env, N_MACHINE), SLOTS)
        self.job = torch.randint(0, N_JOB, (self.n_env,))
        return self.observe()

    def observe(self):
        obs = torch.cat([F.one_hot(self.job, N_JOB).float(), self.free.float() / SLOTS], dim=1)
        return obs, self.free > 0

    def step(self, action):
        reward = self.value[self.job, action]
        self.free[torch.arange(self.n_env), action] -= 1
        self.job = torch.randint(0, N_JOB, (self.n_env,))
        return self.observe(), reward


class ActorCritic(nn.Module):
    def __init__(self, obs_dim, n_action, width=96):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.policy = nn.Linear(width, n_action)
        self.value = nn.Linear(width, 1)
        nn.init.orthogonal_(self.policy.weight, 0.01)
        nn.init.zeros_(self.policy.bias)

    def forward(self, obs, valid):
        h = self.body(obs)
        logits = self.policy(h).masked_fill(~valid, MASK_VALUE)
        return logits, self.value(h).squeeze(-1)


def sample(logits):
    noise = -torch.log(-torch.log(torch.rand_like(logits).clamp(1e-6, 1 - 1e-6)))
    return (logits + noise).argmax(dim=-1)


def horizon_for(update):
    # short shifts first, full shifts of 14 jobs later
    return min(14, 3 + update // 20)


def rollout(env, net, length):
    (obs, valid), logps, values, entropies, rewards = env.reset(), [], [], [], []
    for _ in range(length):
        logits, value = net(obs, valid)
        action = sample(logits.detach())
        logp = F.log_softmax(logits, dim=-1)
        entropies.append(-(logp.exp() * logp).sum(dim=-1))
        logps.append(logp.gather(1, action[:, None]).squeeze(1))
        values.append(value)
        (obs, valid), reward = env.step(action)
        rewards.append(reward)
    return torch.stack(logps), torch.stack(values), torch.stack(entropies), torch.stack(rewards)


def discounted(rewards):
    out, running = torch.zeros_like(rewards), torch.zeros(rewards.shape[1])
    for t in reversed(range(rewards.shape[0])):
        running = rewards[t] + GAMMA * running
        out[t] = running
    return out


def main():
    env = DispatchEnv(N_ENV)
    net = ActorCritic(N_JOB + N_MACHINE, N_MACHINE)
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    recent = []
    for update in range(UPDATES):
        logp, value, entropy, reward = rollout(env, net, horizon_for(update))
        ret = discounted(reward)
        adv = (ret - value).detach()
        adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        pg_loss = -(logp * adv).mean()
        v_loss = F.mse_loss(value, ret)
        loss = pg_loss + VALUE_COEF * v_loss - ENT_COEF * entropy.mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        opt.step()
        recent.append(reward.mean().item())
        if update % 20 == 0 or update == UPDATES - 1:
            print(
                f"update {update:4d} horizon {horizon_for(update):2d} loss {loss.item():.4f} "
                f"value {v_loss.item():.4f} entropy {entropy.mean().item():.3f} "
                f"reward/job {sum(recent[-20:]) / len(recent[-20:]):.4f}"
            )
    print(f"final reward per job {sum(recent[-30:]) / 30:.4f}  final loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
