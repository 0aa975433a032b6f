# expect: sick
# symptom: the self-supervised loss is fine for the whole first epoch, at the last step of the epoch it is NaN and stays so
# axis: data
# cause: the data set size leaves a last batch of one single sample (no drop_last); the batch std and covariance with n - 1 = 0 are NaN
# says: drop_last|(last|final|tail|partial|incomplete|remainder|leftover|short|small|ragged)[^.\n]{0,40}batch|batch[^.\n]{0,40}(of (size )?(one|1)\b|size (one|1|=|drop)|single|incomplete|partial)|(one|single|1)[- ](sample|example|image|item|row)|(std|variance|covariance)[^.\n]{0,60}(one|single|n ?- ?1|unbiased|correction|degrees)
# onset_step: 64
# fix: drop_last=True in the loader (or a batch size that divides the set)
# mended: the loader is built with drop_last=True
import os
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(14)

N_TRAIN, N_TEST, CLASSES, SIDE = 2049, 600, 8, 16
EPOCHS, BATCH = 3, 32


def make_images(n, prototypes):
    y = torch.randint(0, CLASSES, (n,))
    x = prototypes[y]
    shift = torch.randint(-3, 4, (n, 2))
    x = torch.stack([torch.roll(img, tuple(s.tolist()), (1, 2)) for img, s in zip(x, shift)])
    return x * (0.7 + 0.6 * torch.rand(n, 1, 1, 1)) + 0.5 * torch.randn(n, 1, SIDE, SIDE), y


class TwoViews(Dataset):
    def __init__(self, images):
        self.images = images

    def __len__(self):
        return len(self.images)

    def view(self, img):
        if torch.rand(()) < 0.5:
            img = img.flip(-1)
        top, left = torch.randint(0, 5, (2,)).tolist()
        img = F.pad(img, (2, 2, 2, 2))[:, top : top + SIDE, left : left + SIDE]
        return img * (0.6 + 0.8 * torch.rand(())) + 0.2 * torch.randn(img.shape)

    def __getitem__(self, i):
        return self.view(self.images[i]), self.view(self.images[i])


class Net(nn.Module):
    def __init__(self, width=32, proj=64):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.GroupNorm(8, width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, width * 2, 3, padding=1),
            nn.GroupNorm(8, width * 2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width * 2, width * 2, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
        )
        self.projector = nn.Sequential(nn.Linear(width * 8, 128), nn.LayerNorm(128), nn.ReLU(), nn.Linear(128, proj))

    def forward(self, x):
        return self.projector(self.encoder(x))


def off_diagonal(m):
    return m[~torch.eye(len(m), dtype=torch.bool)]


def vicreg(a, b):
    inv = F.mse_loss(a, b)
    var = cov = 0.0
    for z in (a, b):
        var = var + F.relu(1 - torch.sqrt(z.var(0) + 1e-4)).mean() / 2
        z = z - z.mean(0)
        c = z.t() @ z / (len(z) - 1)
        cov = cov + off_diagonal(c).pow(2).sum() / z.shape[1]
    return 25 * inv + 25 * var + cov, inv, var


@torch.no_grad()
def knn_accuracy(model, bank_x, bank_y, x, y, k=9):
    model.eval()
    bank = F.normalize(torch.cat([model.encoder(p) for p in bank_x.split(256)]), dim=1)
    query = F.normalize(model.encoder(x), dim=1)
    votes = bank_y[(query @ bank.t()).topk(k, 1).indices]
    return (votes.mode(1).values == y).float().mean().item()


def main():
    prototypes = F.interpolate(torch.randn(CLASSES, 1, 5, 5), SIDE, mode="bilinear")
    train_x, train_y = make_images(N_TRAIN, prototypes)
    test_x, test_y = make_images(N_TEST, prototypes)
    loader = DataLoader(TwoViews(train_x), batch_size=BATCH, shuffle=True, drop_last=MENDED)
    model = Net()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4)
    step = 0
    for epoch in range(EPOCHS):
        for a, b in loader:
            loss, inv, var = vicreg(model(a), model(b))
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            if step % 16 == 0:
                print(
                    f"epoch {epoch} step {step:4d}  loss {loss.item():.3f}  inv {inv.item():.3f}  var {var.item():.3f}"
                )
            step += 1
    print(f"kNN accuracy {knn_accuracy(model, train_x, train_y, test_x, test_y):.3f} (chance {1 / CLASSES:.3f})")


if __name__ == "__main__":
    main()
