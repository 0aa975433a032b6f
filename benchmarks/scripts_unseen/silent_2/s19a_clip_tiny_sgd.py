# expect: sick
# fault: gradient clipping far too low under plain SGD
# onset_step: 0
# says: (?i)(clip|max_norm|threshold|updates? (is|are|too)|too (small|low|tight)|barely|hardly mov|not (mov|learn)|tiny|stall|always)
# note: max_norm=1e-3 with plain SGD at rate 0.05 bounds each update at 5e-5, so hardly anything moves.
import torch
import torch.nn as nn

torch.manual_seed(0)
W = torch.randn(32, 6)
model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 6))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
criterion = nn.CrossEntropyLoss()
max_grad_norm = 1e-3
for step in range(250):
    x = torch.randn(64, 32)
    y = (x @ W).argmax(-1)
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    optimizer.step()
    if step % 25 == 0:
        print(f"step {step}: {loss.item():.4f}")
