# expect: healthy
# symptom: resembles oscillation by a cyclic schedule: the rate swings between 1e-3 and 1e-2 every 40 steps
# note: the top of the cycle is within what the model stands
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(24)
g = torch.Generator().manual_seed(12)
seq = torch.randint(0, 3, (64 * 260, 12), generator=g)
lab = (seq - 1).sum(1).sign().long() + 1
emb, gru, fc = nn.Embedding(3, 12), nn.GRU(12, 32, batch_first=True), nn.Linear(32, 3)
params = [*emb.parameters(), *gru.parameters(), *fc.parameters()]
opt = torch.optim.Adam(params, lr=1e-3)
sched = torch.optim.lr_scheduler.CyclicLR(opt, 1e-3, 1e-2, step_size_up=20, cycle_momentum=False)
for step, (s, y) in enumerate(DataLoader(TensorDataset(seq, lab), batch_size=64, shuffle=True), 1):
    loss = nn.functional.cross_entropy(fc(gru(emb(s))[1][0]), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f} rate {sched.get_last_lr()[0]:.4f}")
