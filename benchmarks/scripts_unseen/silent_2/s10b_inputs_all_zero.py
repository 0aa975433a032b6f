# expect: sick
# fault: inputs are all zero by a preprocessing bug
# onset_step: 0
# says: (?i)(zero|constant input|input|chance|log ?\(?C|guess|uniform|flat|plateau|not (learn|improv|fall)|uninformative|no (progress|signal)|stuck|stall|same (input|output))
# note: dividing the uint8 image by 255 in integer arithmetic (//) makes each input zero.
import torch
from torch import nn, Tensor


def preprocess(img: Tensor) -> Tensor:
    img = img // 255  # scale to [0, 1]
    return img.float()


class Attention(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.qkv = nn.Linear(d, 3 * d)
        self.proj = nn.Linear(d, d)

    def forward(self, x):
        B, N, D = x.shape
        q, k, v = self.qkv(x).view(B, N, 3, self.h, D // self.h).permute(2, 0, 3, 1, 4)
        o = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.proj(o.transpose(1, 2).reshape(B, N, D))


class TinyViT(nn.Module):
    def __init__(self, d=48, depth=2, classes=9):
        super().__init__()
        self.patch = nn.Conv2d(1, d, 4, 4)
        self.cls = nn.Parameter(torch.zeros(1, 1, d))
        self.pos = nn.Parameter(torch.randn(1, 17, d) * 0.02)
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                dict(
                    n1=nn.LayerNorm(d),
                    at=Attention(d, 4),
                    n2=nn.LayerNorm(d),
                    ff=nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)),
                )
            )
            for _ in range(depth)
        )
        self.head = nn.Linear(d, classes)

    def forward(self, img):
        x = self.patch(img).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
        for l in self.layers:
            x = x + l["at"](l["n1"](x))
            x = x + l["ff"](l["n2"](x))
        return self.head(x[:, 0])


def fake_digits(n):
    y = torch.randint(0, 9, (n,))
    im = torch.randint(0, 60, (n, 1, 16, 16), dtype=torch.int64)
    for i, c in enumerate(y.tolist()):
        r, k = divmod(c, 3)
        im[i, 0, r * 5 : r * 5 + 5, k * 5 : k * 5 + 5] += 180
    return im.to(torch.uint8), y


torch.manual_seed(0)
m = TinyViT()
opt = torch.optim.AdamW(m.parameters(), lr=5e-4, weight_decay=0.05)
for step in range(150):
    img, y = fake_digits(32)
    loss = nn.functional.cross_entropy(m(preprocess(img)), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 15 == 0:
        print({"step": step, "train/loss": round(loss.item(), 4)})
