# expect: healthy
# symptom: resembles a collapsed policy: the loss goes to 0 and the entropy falls once the reward is at its maximum
# note: the task is solved; advantages have an eps
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(23)
rng = torch.Generator().manual_seed(2)
policy = nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 5))
opt = torch.optim.Adam(policy.parameters(), lr=1e-2)
for update in range(1, 221):
    digit = torch.randint(0, 5, (64,), generator=rng)
    logp = policy(nn.functional.one_hot(digit, 5).float()).log_softmax(-1)
    act = torch.multinomial(logp.detach().exp(), 1).squeeze(1)
    reward = (act == (digit + 2) % 5).float()
    adv = (reward - reward.mean()) / (reward.std() + 1e-6)
    entropy = -(logp.exp() * logp).sum(-1).mean()
    loss = -(adv * logp.gather(1, act[:, None]).squeeze(1)).mean() - 0.005 * entropy
    opt.zero_grad()
    loss.backward()
    opt.step()
    if update % 20 == 0:
        print(f"update {update} reward {reward.mean().item():.3f} loss {loss.item():.4f} entropy {entropy.item():.3f}")
