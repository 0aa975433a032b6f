# expect: sick
# symptom: nothing explodes; the loss falls for some 60 steps and then stands still at 0.27, twenty-five times what the plan gives, although the plan is for eight epochs
# axis: schedule
# cause: ExponentialLR(0.95), meant for epochs, is stepped after every batch; after 80 batches the rate is nearly zero
# says: (?i)scheduler-misstep|learning-rate-too-low|schedul|((learning[ -]?)?rate|\blr\b).{0,60}(decay|vanish|zero|too (small|low|fast|soon|early)|cut|collaps|fall|fell|drop|per (batch|step)|shr[iau]nk|tiny)|per.?(batch|step).{0,40}epoch|gamma
# onset_step: 20
# fix: scheduler.step() once per epoch
# mended: steps the scheduler at the end of each epoch
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(219)
PER_EPOCH = os.environ.get("MENDED") == "1"
gen = torch.Generator().manual_seed(20)
T = 32
t = torch.arange(T + 4) * 0.3 + 20 * torch.rand(40 * 32, 1, generator=gen)
wave = torch.sin(t) + 0.6 * torch.sin(2.3 * t) + 0.1 * torch.randn(t.shape, generator=gen)
data = DataLoader(TensorDataset(wave[:, None, :T], wave[:, T:]), batch_size=32, shuffle=True)
net = nn.Sequential(
    nn.Conv1d(1, 24, 5, padding=4, dilation=2),
    nn.ReLU(),
    nn.Conv1d(24, 24, 5, padding=8, dilation=4),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(24 * T, 4),
)
opt = torch.optim.Adam(net.parameters(), lr=5e-4)
sched = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.95)
step = 0
for epoch in range(8):
    for x, y in data:
        step += 1
        loss = nn.functional.mse_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if not PER_EPOCH:
            sched.step()
        if step % 20 == 0:
            print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
    if PER_EPOCH:
        sched.step()
