# expect: healthy
# symptom: an advantage column times log-probabilities gives a square matrix
# axis: none
# mended: none
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(52)
LETTERS, LENGTH, GROUP, UPDATES = 6, 16, 16, 250


class Writer(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.start = nn.Parameter(torch.zeros(d))
        self.emb = nn.Embedding(LETTERS, d)
        self.cell = nn.GRUCell(d, d)
        self.out = nn.Linear(d, LETTERS)

    def rollout(self, n):
        h = torch.zeros(n, self.cell.hidden_size)
        x = self.start.expand(n, -1)
        letters, logps = [], []
        for _ in range(LENGTH):
            h = self.cell(x, h)
            logp = F.log_softmax(self.out(h), -1)
            a = torch.multinomial(logp.exp().detach(), 1)
            letters.append(a.squeeze(1))
            logps.append(logp.gather(1, a).squeeze(1))
            x = self.emb(letters[-1])
        return torch.stack(letters, 1), torch.stack(logps, 1)


def judge(text):
    """One score for a whole text: share of neighbours that go up by one."""
    return ((text[:, 1:] - text[:, :-1]) % LETTERS == 1).float().mean(1, keepdim=True)


writer = Writer()
opt = torch.optim.Adam(writer.parameters(), lr=4e-3)
for update in range(UPDATES):
    text, logp = writer.rollout(GROUP)
    reward = judge(text)
    adv = (reward - reward.mean()) / (reward.std() + 1e-4)
    loss = -(adv * logp).mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(writer.parameters(), 1.0)
    opt.step()
    if update % 25 == 0 or update == UPDATES - 1:
        print(f"update {update} score {reward.mean().item():.3f} loss {loss.item():+.4f} logp {logp.mean().item():.3f}")
