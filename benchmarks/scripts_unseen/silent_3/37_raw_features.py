# expect: sick
# fault: inputs not normalised
# onset_step: 0
# says: (?i)(normali[sz]|standardi[sz]|input.{0,60}(scale|range|large|magnitude|std|huge|mean)|scale.{0,30}input|feature.{0,40}(scale|range|large)|saturat)
# note: mean and std are computed but the loop takes the raw columns (income in 1e4, year about 2000); tanh units saturate and little is learnt.
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(50)
n = 2000
income = torch.randn(n) * 1.5e4 + 5e4
year = torch.randint(1970, 2024, (n,)).float()
ratio = torch.rand(n)
visits = torch.randint(0, 400, (n,)).float()
raw = torch.stack([income, year, ratio, visits], 1)
z = (raw - raw.mean(0)) / raw.std(0)
y = (z[:, 0] * 1.2 + z[:, 2] * z[:, 3] - 0.8 * z[:, 1] + 0.2 * torch.randn(n) > 0).long()

mean, std = raw[:1600].mean(0), raw[:1600].std(0)
normed = (raw - mean) / std
train_x, test_x = raw[:1600], raw[1600:]
train_y, test_y = y[:1600], y[1600:]

model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2))
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
ce = nn.CrossEntropyLoss()
for epoch in range(5):
    perm = torch.randperm(1600)
    running = 0
    for b in range(40):
        i = perm[b * 40 : (b + 1) * 40]
        opt.zero_grad()
        loss = ce(model(train_x[i]), train_y[i])
        loss.backward()
        opt.step()
        running += loss.item()
    print(f"epoch {epoch}: {running / 40:.4f} final test {ce(model(test_x), test_y).item():.4f}")
