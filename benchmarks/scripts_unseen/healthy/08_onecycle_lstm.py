# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
import math
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(2)
t = torch.arange(21).float()
wave = torch.sin((0.2 + 0.5 * torch.rand(1600, 1)) * t + 2 * math.pi * torch.rand(1600, 1))
ds = TensorDataset(wave[:, :-1, None], wave[:, -1:])
dl = DataLoader(ds, batch_size=32, shuffle=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(1, 32, batch_first=True)
        self.fc = nn.Linear(32, 1)

    def forward(self, x):
        return self.fc(self.lstm(x)[0][:, -1])


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=0.01)
EPOCHS = 2
sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.01, epochs=EPOCHS, steps_per_epoch=len(dl))
i = 0
for ep in range(EPOCHS):
    for x, y in dl:
        loss = ((net(x) - y) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        sched.step()
        i += 1
        if i % 20 == 0:
            print(i, "loss %.5f lr %.5f" % (loss.item(), sched.get_last_lr()[0]))
