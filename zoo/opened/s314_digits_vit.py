# expect: sick
# symptom: the loss falls a little in the first steps and then stands still near ln 10 for the rest of the run
# axis: schedule
# cause: StepLR is meant per epoch but stepped after every batch, so the learning rate is practically zero after some fifty steps
# says: (schedul\w*|steplr|learning.?rate|\blr\b|decay\w*).{0,120}(per batch|every batch|each batch|per step|every step|each step|each iteration|per iteration|too (often|fast|early|soon|small|low|quick)|near(ly)? zero|almost zero|practically zero|to zero|collaps\w*|vanish\w*|decay\w* (away|too)|inside the batch|once per epoch|instead of (per |every |each )?epoch|tiny|dies|died)|(batch|step|iteration)\w*.{0,30}instead of.{0,15}epoch
# onset_step: 15
# fix: step the scheduler once per epoch
# mended: MENDED=1
import os

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(6)


class DigitViT(nn.Module):
    def __init__(self, dim=40, depth=2, patch=2):
        super().__init__()
        self.patch = nn.Conv2d(1, dim, patch, stride=patch)
        n = (8 // patch) ** 2
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(torch.randn(1, n + 1, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(dim, 4, 2 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 10))

    def forward(self, x):
        t = self.patch(x).flatten(2).transpose(1, 2)
        t = torch.cat([self.cls.expand(len(x), -1, -1), t], 1) + self.pos
        return self.head(self.encoder(t)[:, 0])


class Runner:
    def __init__(self, model, epochs):
        self.model, self.epochs, self.step = model, epochs, 0
        self.per_batch = os.environ.get("MENDED") != "1"
        self.opt = torch.optim.AdamW(model.parameters(), lr=1.5e-3, weight_decay=0.05)
        self.sched = torch.optim.lr_scheduler.StepLR(self.opt, step_size=15, gamma=0.2)

    def epoch(self, loader):
        self.model.train()
        for x, y in loader:
            loss = F.cross_entropy(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.step += 1
            if self.per_batch:
                self.sched.step()
            if self.step % 20 == 0:
                print(f"step {self.step} loss {loss.item():.4f}")
        if not self.per_batch:
            self.sched.step()

    @torch.no_grad()
    def accuracy(self, x, y):
        self.model.eval()
        return (self.model(x).argmax(1) == y).float().mean().item()

    def fit(self, loader, valid):
        for e in range(self.epochs):
            self.epoch(loader)
            print(f"epoch {e} accuracy {self.accuracy(*valid):.3f}")


def main():
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16 - 0.3
    xa, xb, ya, yb = train_test_split(images, torch.tensor(labels), test_size=300, random_state=0)
    loader = DataLoader(TensorDataset(xa, ya), batch_size=48, shuffle=True, drop_last=True)
    Runner(DigitViT(), epochs=10).fit(loader, (xb, yb))


if __name__ == "__main__":
    main()
