# expect: sick
# fault: layers swapped when a checkpoint is put back
# onset_step: 60
# says: (?i)(loss|gradient|restor|load|weights?|state|progress|spike|diverg|reset)
# note: after a short pause at step 60 the weights are put back by position, with the list of block tensors reversed; all blocks have one shape.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(25)


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(12, 32)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(32, 32), nn.Tanh()) for _ in range(4))
        self.out = nn.Linear(32, 5)

    def forward(self, x):
        x = torch.tanh(self.inp(x))
        for b in self.blocks:
            x = b(x)
        return self.out(x)


net = Deep()
W = torch.randn(12, 5)
opt = torch.optim.Adam(net.parameters(), lr=3e-3)


def put_back(model, saved):
    with torch.no_grad():
        for b, w in zip(model.blocks, reversed(saved)):
            b[0].weight.copy_(w)


for step in range(150):
    if step == 60:
        saved = [b[0].weight.detach().clone() for b in net.blocks]
        put_back(net, saved)
    x = torch.randn(48, 12)
    y = (x @ W).argmax(1)
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print(step, f"{loss.item():.4f}")
