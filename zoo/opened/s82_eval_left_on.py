# expect: sick
# symptom: nothing explodes; the training loss falls faster than before while the validation loss gets worse and worse after the first evaluation
# axis: harness
# cause: the evaluation at step 60 puts the model into eval mode and the loop never returns to train mode, so the dropout is off for the rest of the run
# says: eval(uation)?.{0,3}(\(\)|mode)|train(ing)?.{0,3}(\(\)|mode)|mode (was )?(left|stays|not (restored|reset))|dropout|inference mode
# onset_step: 60
# fix: call model.train() after each evaluation
# mended: evaluate() returns the model to train mode
import os

import torch
from torch import nn

torch.manual_seed(37)


def make_table(n, cols=60, useful=8):
    x = torch.randn(n, cols)
    w = torch.zeros(cols)
    w[:useful] = torch.linspace(1.0, 2.0, useful)
    y = ((x * w).sum(1) + 0.6 * x[:, 0] * x[:, 1] + torch.randn(n) > 0).float()
    wrong = torch.rand(n) < 0.2  # churn recorded late or by mistake
    y = torch.where(wrong, 1 - y, y)
    return x, y


class ChurnNet(nn.Module):
    def __init__(self, cols=60):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Dropout(0.3),
            nn.Linear(cols, 256),
            nn.ReLU(),
            nn.Dropout(0.6),
            nn.Linear(256, 256),
            nn.ReLU(),
            nn.Dropout(0.6),
            nn.Linear(256, 1),
        )

    def forward(self, x):
        return self.layers(x).squeeze(-1)


class Trainer:
    def __init__(self):
        self.x, self.y = make_table(900)
        self.vx, self.vy = make_table(3000)
        self.model = ChurnNet()
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=1e-3, weight_decay=1e-2)
        self.bce = nn.BCEWithLogitsLoss()

    def evaluate(self):
        self.model.eval()
        with torch.no_grad():
            out = self.model(self.vx)
            loss = self.bce(out, self.vy).item()
            acc = ((out > 0) == (self.vy > 0.5)).float().mean().item()
        if os.environ.get("MENDED") == "1":
            self.model.train()
        return loss, acc

    def fit(self, steps):
        self.model.train()
        for step in range(1, steps + 1):
            rows = torch.randint(len(self.x), (64,))
            loss = self.bce(self.model(self.x[rows]), self.y[rows])
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            if step % 60 == 0:
                v, acc = self.evaluate()
                print(f"step {step} train {loss.item():.4f} valid {v:.4f} accuracy {acc:.3f}")


Trainer().fit(480)
