# expect: healthy
# fault: most of the input hidden; loss on a part of the positions only
# note: a masked auto-encoder: 60 % of the patches are dropped by random choice and only these are in the loss, as in the paper.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(11)
P, L, D = 9, 16, 32


class MAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(P, D)
        self.pos = nn.Parameter(torch.randn(1, L, D) * 0.1)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, D))
        block = lambda: nn.TransformerEncoderLayer(D, 4, 64, 0.0, batch_first=True, norm_first=True)
        self.enc, self.dec = block(), block()
        self.pred = nn.Linear(D, P)

    def forward(self, patches, ratio=0.6):
        b = len(patches)
        keep = int(L * (1 - ratio))
        order = torch.rand(b, L).argsort(1)
        back = order.argsort(1)
        x = self.embed(patches) + self.pos
        vis = torch.gather(x, 1, order[:, :keep, None].expand(-1, -1, D))
        vis = self.enc(vis)
        full = torch.cat([vis, self.mask_token.expand(b, L - keep, D)], 1)
        full = torch.gather(full, 1, back[..., None].expand(-1, -1, D)) + self.pos
        out = self.pred(self.dec(full))
        hidden = (back >= keep).float()
        return ((out - patches).pow(2).mean(-1) * hidden).sum() / hidden.sum()


def images(n):
    yy = torch.arange(12.0)
    a, b, c = (torch.rand(n, 1, 1) * 2 for _ in range(3))
    img = torch.sin(a * yy[None, :, None] + c * 3) + torch.cos(b * yy[None, None, :])
    return img.unfold(1, 3, 3).unfold(2, 3, 3).reshape(n, L, P)


net = MAE()
opt = torch.optim.AdamW(net.parameters(), lr=3e-3, betas=(0.9, 0.95))
for s in range(200):
    loss = net(images(48))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if s % 20 == 0:
        print("step", s, "loss", loss.item())
