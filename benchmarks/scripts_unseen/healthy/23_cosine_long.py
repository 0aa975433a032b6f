# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(1)
# smoke test of the pre-training config: only the first 100 of 200k steps
HORIZON = 200_000
conv = nn.Sequential(
    nn.Conv1d(2, 16, 5, padding=2),
    nn.ReLU(),
    nn.Conv1d(16, 16, 5, padding=2),
    nn.ReLU(),
    nn.AdaptiveMaxPool1d(1),
    nn.Flatten(),
    nn.Linear(16, 4),
)
opt = torch.optim.AdamW(conv.parameters(), lr=3e-3)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=HORIZON)
motif = torch.randn(4, 2, 7) * 2
for step in range(100):
    y = torch.randint(0, 4, (32,))
    x = 0.7 * torch.randn(32, 2, 30)
    for i in range(32):
        o = torch.randint(0, 23, (1,)).item()
        x[i, :, o : o + 7] += motif[y[i]]
    loss = nn.functional.cross_entropy(conv(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.8f}")
