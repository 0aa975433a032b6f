# EXPECT: sick
# FAULT: labels not shifted, the model predicts its own input
# ONSET: 1
# SAYS: shift|identity|copy|input
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(101)

NOTES = 36


def compose(bs, T):
    """random melodies in steps of a scale"""
    scale = torch.tensor([0, 2, 4, 5, 7, 9, 11])
    deg = torch.cumsum(torch.randint(-2, 3, (bs, T)), 1).clamp(-7, 13) + 7
    return (scale[deg % 7] + 12 * (deg // 7)).clamp(0, NOTES - 1)


class MelodyRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(NOTES, 24)
        self.lstm = nn.LSTM(24, 64, num_layers=2, batch_first=True, dropout=0.1)
        self.fc = nn.Linear(64, NOTES)

    def forward(self, x, state=None):
        h, state = self.lstm(self.emb(x), state)
        return self.fc(h), state


model = MelodyRNN()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=8e-3)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=110, eta_min=1e-4)

for it in range(110):
    notes = compose(32, 32)
    x = notes
    y = notes
    logits, _ = model(x)
    loss = criterion(logits.transpose(1, 2), y)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    sched.step()
    if it % 10 == 0:
        print("it {:3d}  nll {:.4f}  lr {:.5f}".format(it, loss.item(), sched.get_last_lr()[0]))
