# expect: sick
# symptom: held-out rows are worse than they need to be
# axis: data
# cause: inputs of two rows are mixed and the labels are not mixed alike
# says: (mix|lam|cut.?mix|blend).{0,160}(label|target)|(label|target).{0,120}(mix|lam|permut|order|weight)
# onset_step: 0
# fix: mix the labels with the weights of the inputs
# mended: the same with the fix
import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Beta

MENDED = os.environ.get("MENDED") == "1"
torch.manual_seed(9)
torch.set_num_threads(1)

N_CLASSES = 5


def clouds(n, centres):
    y = torch.randint(0, N_CLASSES, (n,))
    return centres[y] + 1.0 * torch.randn(n, centres.size(1)), y


class MixupCollate:
    def __init__(self, alpha):
        self.beta = Beta(torch.tensor(alpha), torch.tensor(alpha))

    def __call__(self, rows):
        x = torch.stack([r[0] for r in rows])
        t = F.one_hot(torch.stack([r[1] for r in rows]), N_CLASSES).float()
        lam = self.beta.sample((len(rows), 1))
        perm = torch.randperm(len(rows))
        x = lam * x + (1 - lam) * x[perm]
        w = lam if MENDED else 1 - lam
        t = w * t + (1 - w) * t[perm]
        return x, t


def soft_cross_entropy(logits, target):
    return -(target * F.log_softmax(logits, dim=-1)).sum(-1).mean()


class Classifier(nn.Module):
    def __init__(self, n_in):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(n_in, 48), nn.GELU(), nn.Linear(48, N_CLASSES))

    def forward(self, x):
        return self.layers(x)


def main():
    centres = 1.1 * torch.randn(N_CLASSES, 10)
    train = torch.utils.data.TensorDataset(*clouds(600, centres))
    xt, yt = clouds(500, centres)
    loader = torch.utils.data.DataLoader(train, batch_size=40, shuffle=True, collate_fn=MixupCollate(0.4))
    net = Classifier(10)
    opt = torch.optim.AdamW(net.parameters(), lr=5e-3, weight_decay=1e-2)
    for epoch in range(1, 11):
        losses = []
        for x, t in loader:
            loss = soft_cross_entropy(net(x), t)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        if epoch % 2 == 0:
            with torch.no_grad():
                logits = net(xt)
            acc = (logits.argmax(-1) == yt).float().mean().item()
            print(
                f"epoch {epoch}: loss {sum(losses) / len(losses):.4f} test loss {F.cross_entropy(logits, yt):.4f} acc {acc:.3f}"
            )


if __name__ == "__main__":
    main()
