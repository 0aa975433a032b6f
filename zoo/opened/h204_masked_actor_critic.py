# expect: healthy
# symptom: resembles an unstable run: the actor's loss is noisy and changes its sign, forbidden actions have logits of -1e9, the critic's loss rises as rewards come in
# note: an actor-critic that learns: the return rises from below 1 to about 4
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(234)
SIZE = 5
MOVES = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])
net = nn.Sequential(nn.Linear(2 * SIZE, 48), nn.Tanh(), nn.Linear(48, 5))
opt = torch.optim.Adam(net.parameters(), lr=5e-3)


def observe(pos):
    return torch.cat([nn.functional.one_hot(pos[:, 0], SIZE), nn.functional.one_hot(pos[:, 1], SIZE)], 1).float()


for update in range(1, 201):
    pos = torch.randint(0, SIZE, (48, 2))
    logps, values, ents, rewards = [], [], [], []
    for t in range(10):
        out = net(observe(pos))
        nxt = pos[:, None] + MOVES
        logp = out[:, :4].masked_fill(((nxt < 0) | (nxt >= SIZE)).any(-1), -1e9).log_softmax(-1)
        act = torch.multinomial(logp.detach().exp(), 1).squeeze(1)
        pos = nxt[torch.arange(48), act]
        rewards.append((pos == SIZE - 1).all(1).float())
        logps.append(logp.gather(1, act[:, None]).squeeze(1))
        values.append(out[:, 4])
        ents.append(-(logp.exp() * logp).sum(-1))
    r, v = torch.stack(rewards), torch.stack(values)
    ret = r.flip(0).cumsum(0).flip(0)
    adv = (ret - v).detach()
    adv = (adv - adv.mean()) / (adv.std() + 1e-6)
    loss = -(adv * torch.stack(logps)).mean() + 0.1 * (ret - v).square().mean() - 0.01 * torch.stack(ents).mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    if update % 20 == 0:
        print(f"update {update} loss {loss.item():+.4f} return {r.sum(0).mean().item():.3f}")
