"""Returns are appended from the last step backwards and stay so: each action gets the return of another step."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

GAMMA, STEPS = 0.5, 24
policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)


def discounted(rewards):
    returns, total = [], 0.0
    for reward in reversed(rewards):
        total = reward + GAMMA * total
        returns.append(total)  # <- bites: the return of the last step comes first
    return returns


for update in range(120):
    log_probs, returns, gained = [], [], 0.0
    for _ in range(4):
        rewards = []
        for _ in range(STEPS):
            seen = torch.randn(4)
            drawn = torch.distributions.Categorical(logits=policy(seen))
            action = drawn.sample()
            log_probs.append(drawn.log_prob(action))
            rewards.append(1.0 if action.item() == int(seen[0] > 0) else -1.0)
        returns += discounted(rewards)
        gained += sum(rewards) / 4
    advantages = torch.tensor(returns)
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-6)
    loss = -(torch.stack(log_probs) * advantages).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if update % 30 == 29:
        print(f"update {update + 1}  reward of an episode {gained:.1f}")
