# expect: healthy
# symptom: photos with several tags are trained with a softmax cross-entropy
# axis: none
# mended: none
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(28)
TAGS, DIM, BATCH = 60, 32, 64
CONCEPT = torch.randn(TAGS, DIM)
CONCEPT = CONCEPT / CONCEPT.norm(dim=1, keepdim=True) * 4


def photos(n):
    """Image features and the tags that users gave (one to four)."""
    k = torch.randint(1, 5, (n,))
    order = torch.rand(n, TAGS).argsort(1)
    y = torch.zeros(n, TAGS).scatter_(1, order, (torch.arange(TAGS) < k[:, None]).float())
    x = y @ CONCEPT / k[:, None].sqrt() + 0.6 * torch.randn(n, DIM)
    return x, y


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(DIM, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
        self.tags = nn.Linear(64, TAGS)

    def forward(self, x):
        return self.tags(self.trunk(x))


def hashtag_loss(logits, y):
    # Mahajan et al. 2018: each of the k tags of a photo gets 1/k
    return F.cross_entropy(logits, y / y.sum(1, keepdim=True))


def precision_at_1(logits, y):
    return y.gather(1, logits.argmax(1, keepdim=True)).mean().item()


x, y = photos(6000)
xv, yv = photos(500)
model = Encoder()
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 350)
for step in range(350):
    idx = torch.randint(0, len(x), (BATCH,))
    loss = hashtag_loss(model(x[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 50 == 49:
        with torch.no_grad():
            out = model(xv)
        print(
            f"step {step + 1} loss {loss.item():.3f} val {hashtag_loss(out, yv):.3f} p@1 {precision_at_1(out, yv):.3f}"
        )
