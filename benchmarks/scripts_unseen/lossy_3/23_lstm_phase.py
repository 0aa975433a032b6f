# expect: sick
# fault: Adam's betas changed to (0.9, 0.05) and eps tiny in mid run
# onset_step: 150
# says: (?i)(loss|gradient|beta|moment|rate|progress|spike|diverg|oscill)
# note: the phase change sets betas=(0.9, 0.05) for (0.9, 0.95) together with a 12 times higher rate; the second moment no longer averages.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(23)


class Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(30, 24)
        self.l = nn.LSTM(24, 40, batch_first=True)
        self.o = nn.Linear(40, 30)

    def forward(self, x):
        return self.o(self.l(self.e(x))[0])


rule = torch.stack([torch.randperm(30)[:2] for _ in range(30)])


def text(n=24):
    s = torch.randint(0, 30, (n, 1))
    for _ in range(16):
        s = torch.cat([s, rule[s[:, -1], torch.randint(0, 2, (n,))][:, None]], 1)
    return s


net = Seq()
opt = torch.optim.Adam(net.parameters(), lr=8e-3, betas=(0.9, 0.95))
for step in range(220):
    if step == 150:
        opt.param_groups[0].update(betas=(0.9, 0.05), lr=0.1)
    s = text()
    loss = nn.functional.cross_entropy(net(s[:, :-1]).flatten(0, 1), s[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print(step, f"{loss.item():.4f}")
