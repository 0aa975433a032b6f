# expect: sick
# symptom: the agent learns for 119 updates; at update 120, when walls are added, the loss is NaN and stays NaN
# axis: loss
# cause: the entropy bonus multiplies p by log p for forbidden actions, whose logits are -inf: 0 times -inf is NaN
# says: (?i)singular-operation|entropy|log.{0,30}(\b0(?![.\d])|zero|-?inf)|0 ?[*x×] ?-?inf|(forbidden|masked|illegal|invalid).{0,30}action|-inf
# onset_step: 120
# fix: mask with -1e9 instead of -inf (or leave forbidden actions out of the entropy)
# mended: masks with -1e9
import os

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(211)
SIZE, NO = 5, -1e9 if os.environ.get("MENDED") == "1" else float("-inf")
MOVES = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])
net = nn.Sequential(nn.Linear(2 * SIZE, 48), nn.Tanh(), nn.Linear(48, 5))
opt = torch.optim.Adam(net.parameters(), lr=5e-3)


def observe(pos):
    return torch.cat([nn.functional.one_hot(pos[:, 0], SIZE), nn.functional.one_hot(pos[:, 1], SIZE)], 1).float()


for update in range(1, 261):
    walls = update >= 120
    pos = torch.randint(0, SIZE, (48, 2))
    logps, values, ents, rewards = [], [], [], []
    for t in range(10):
        out = net(observe(pos))
        logits, value = out[:, :4], out[:, 4]
        nxt = pos[:, None] + MOVES
        if walls:
            logits = logits.masked_fill(((nxt < 0) | (nxt >= SIZE)).any(-1), NO)
        logp = logits.log_softmax(-1)
        act = torch.multinomial(logp.detach().exp().nan_to_num(0.25), 1).squeeze(1)
        pos = nxt[torch.arange(48), act].clamp(0, SIZE - 1)
        rewards.append((pos == SIZE - 1).all(1).float())
        logps.append(logp.gather(1, act[:, None]).squeeze(1))
        values.append(value)
        ents.append(-(logp.exp() * logp).sum(-1))
    r = torch.stack(rewards)
    ret = r.flip(0).cumsum(0).flip(0)
    v = torch.stack(values)
    adv = (ret - v).detach()
    adv = (adv - adv.mean()) / (adv.std() + 1e-6)
    loss = -(adv * torch.stack(logps)).mean() + 0.1 * (ret - v).square().mean() - 0.02 * torch.stack(ents).mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    if update % 20 == 0 or 117 < update < 124:
        print(f"update {update} loss {loss.item():.4f} return {r.sum(0).mean().item():.3f}")
