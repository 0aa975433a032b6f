# expect: sick
# fault: rate far too high from the start for Adam and a transformer
# onset_step: 0
# says: (?i)(loss|gradient|rate|progress|spike|diverg|flat|plateau|lr|saturat)
# note: lr=0.3 with Adam ("as in the SGD recipe") on a transformer; it never gets under the loss of the prior.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(20)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(50, 32)
        self.enc = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True), 2, enable_nested_tensor=False
        )
        self.out = nn.Linear(32, 4)

    def forward(self, x):
        return self.out(self.enc(self.emb(x)).mean(1))


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=0.3)
for step in range(120):
    y = torch.randint(0, 4, (32,))
    x = torch.randint(0, 48, (32, 10))
    x[:, 3:6] = torch.randint(0, 12, (32, 3)) * 4 + y[:, None]
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print(step, loss.item())
