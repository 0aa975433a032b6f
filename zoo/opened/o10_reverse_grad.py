# expect: healthy
# symptom: signs that look turned and are right
# axis: none
# mended: none
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import Function
from torch.utils.data import DataLoader, TensorDataset


class ReverseGrad(Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.alpha * grad, None


class DomainNet(nn.Module):
    def __init__(self, n_in=8, width=24, classes=3):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(n_in, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.classify = nn.Linear(width, classes)
        self.domain = nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, x, alpha):
        f = self.features(x)
        return f, self.classify(f), self.domain(ReverseGrad.apply(f, alpha))


def different_class_similarity(f, y):
    f = F.normalize(f - f.mean(0), dim=-1)
    other = (y[:, None] != y[None]).float()
    return ((f @ f.t()) * other).sum() / other.sum()


def make_domains(n):
    centres = 1.3 * torch.randn(3, 8)
    ys, yt = torch.randint(0, 3, (2, n))
    shift = torch.zeros(8)
    shift[:3] = 2.0
    xs = centres[ys] + 0.7 * torch.randn(n, 8)
    xt = centres[yt] + 0.7 * torch.randn(n, 8) + shift
    return TensorDataset(xs, ys, xt, yt)


def main():
    torch.manual_seed(6)
    torch.set_num_threads(1)
    data = make_domains(640)
    loader = DataLoader(data, batch_size=64, shuffle=True)
    net = DomainNet()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    for epoch in range(1, 21):
        alpha = 0.3 * min(1.0, epoch / 10)
        total = 0.0
        for xs, ys, xt, _ in loader:
            fs, class_logits, dom_s = net(xs, alpha)
            _, _, dom_t = net(xt, alpha)
            source, target = torch.zeros(len(xs)).long(), torch.ones(len(xt)).long()
            domain_loss = F.cross_entropy(dom_s, source) + F.cross_entropy(dom_t, target)
            loss = F.cross_entropy(class_logits, ys) + domain_loss + 0.2 * different_class_similarity(fs, ys)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        if epoch % 5 == 0:
            with torch.no_grad():
                _, _, xt, yt = data.tensors
                acc = (net(xt, 0.0)[1].argmax(1) == yt).float().mean().item()
            print(f"epoch {epoch} loss {total / len(loader):.4f} domain {domain_loss.item():.3f} target acc {acc:.3f}")


main()
