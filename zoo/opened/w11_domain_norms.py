# expect: sick
# symptom: the loss stays far above what the model can reach
# axis: model
# cause: rows stay sorted by domain, so each row gets the result of another row
# says: permut|un-?sort|argsort|(original|wrong|sorted|grouped|another) order|not (put|sorted|scattered|written) back|(wrong|other|another|different) (row|sample|token)|(row|token|output|result)s?.{0,40}(mixed|misalign|shuffl|scrambl)
# onset_step: 0
# fix: put the results back into the order of the rows
# mended: the inverse order
import os
import torch
from torch import nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"

torch.manual_seed(4)
N_DOMAINS, N_CLASSES = 3, 5


class DomainBatchNorm(nn.Module):
    def __init__(self, channels, n_domains):
        super().__init__()
        self.n_domains = n_domains
        self.bns = nn.ModuleList([nn.BatchNorm2d(channels) for _ in range(n_domains)])

    def forward(self, x, domain):
        sizes = [(domain == d).sum().item() for d in range(self.n_domains)]
        x = x[domain.argsort(stable=True)]
        pieces = x.split(sizes)
        joined = torch.cat([bn(p) for bn, p in zip(self.bns, pieces) if len(p) > 0])
        if MENDED:
            joined = joined[domain.argsort(stable=True).argsort()]
        return joined


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 12, 3, padding=1)
        self.bn1 = DomainBatchNorm(12, N_DOMAINS)
        self.conv2 = nn.Conv2d(12, 24, 3, padding=1)
        self.fc = nn.Linear(24 * 9, N_CLASSES)

    def forward(self, x, domain):
        x = F.relu(self.bn1(self.conv1(x), domain))
        x = F.max_pool2d(x, 2)
        x = F.relu(self.conv2(x))
        x = F.max_pool2d(x, 2)
        return self.fc(x.flatten(1))


patterns = torch.rand(N_CLASSES, 1, 12, 12)
scale = torch.tensor([1.0, 3.0, 0.4])
offset = torch.tensor([0.0, -2.0, 1.0])


def batch(n=64):
    y = torch.randint(0, N_CLASSES, (n,))
    d = torch.randint(0, N_DOMAINS, (n,))
    img = patterns[y] + 0.2 * torch.randn(n, 1, 12, 12)
    img = img * scale[d].view(-1, 1, 1, 1) + offset[d].view(-1, 1, 1, 1)
    return img, d, y


net = ConvNet()
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
avg = None
for it in range(1, 121):
    net.train()
    img, dom, lab = batch()
    loss = F.cross_entropy(net(img, dom), lab)
    opt.zero_grad()
    loss.backward()
    opt.step()
    avg = loss.item() if avg is None else 0.9 * avg + 0.1 * loss.item()
    if it % 20 == 0:
        net.eval()
        with torch.no_grad():
            img, dom, lab = batch(256)
            acc = (net(img, dom).argmax(1) == lab).float().mean().item()
        print(f"iter {it:3d} loss {avg:.4f} acc {acc:.3f}")
