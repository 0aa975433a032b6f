# expect: sick
# symptom: the kept checkpoint is the last epoch although the validation loss is lowest at epoch 6, and its recall of 0.57 is lower than an ROC curve of the same scores suggests
# axis: harness
# cause: the accuracy that chooses the best model compares raw logits with 0.5, as if they were probabilities (0.5 in logits is p = 0.62)
# says: (logit|raw (output|score)).*(0?\.5|threshold|sigmoid)|(0?\.5|threshold).*(logit|raw|sigmoid)|sigmoid.*(missing|before|forgot|without|not applied)
# onset_step: 0
# fix: apply the sigmoid before the threshold, or compare with 0
# mended: sigmoid before the threshold
import os
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(30)
MENDED = os.environ.get("MENDED") == "1"


class ChurnNet(nn.Module):
    def __init__(self, n_features):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(n_features, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)
        )

    def forward(self, x):
        return self.layers(x).squeeze(1)


def subscribers(n):
    x = torch.randn(n, 20)
    p = torch.sigmoid(1.1 * x[:, 0] - x[:, 1] + 0.8 * x[:, 2] * x[:, 3])
    return x, (torch.rand(n) < p).float()


@torch.no_grad()
def validate(model, x, y, criterion):
    model.eval()
    output = model(x)
    scores = torch.sigmoid(output) if MENDED else output
    predicted = (scores > 0.5).float()
    recall = (predicted * y).sum() / y.sum()
    return criterion(output, y).item(), (predicted == y).float().mean().item(), recall.item()


x_train, y_train = subscribers(1000)
x_val, y_val = subscribers(1000)
model = ChurnNet(20)
criterion = nn.BCEWithLogitsLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=8e-4)
best_acc, best_epoch, best_weights = 0.0, None, None
for epoch in range(15):
    model.train()
    for idx in torch.randperm(1000).split(50):
        optimizer.zero_grad()
        loss = criterion(model(x_train[idx]), y_train[idx])
        loss.backward()
        optimizer.step()
    val_loss, val_acc, val_recall = validate(model, x_val, y_val, criterion)
    mark = ""
    if val_acc > best_acc:
        best_acc, best_epoch, mark = val_acc, epoch, " *"
        best_weights = {k: v.clone() for k, v in model.state_dict().items()}
    print(
        f"epoch {epoch} loss {loss.item():.3f} val loss {val_loss:.3f} acc {val_acc:.3f} recall {val_recall:.3f}{mark}"
    )
model.load_state_dict(best_weights)
print("kept epoch", best_epoch, "val loss %.3f acc %.3f recall %.3f" % validate(model, x_val, y_val, criterion))
