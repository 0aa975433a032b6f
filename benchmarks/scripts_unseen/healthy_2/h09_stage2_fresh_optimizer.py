# expect: healthy
# fault: none
# note: stage two deliberately loads the weights only, with a fresh optimizer, a new warm-up and other data.
import io, torch, torch.nn as nn, torch.nn.functional as F

torch.manual_seed(8)
make = lambda: nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
WA, WB = torch.randn(16, 4), torch.randn(16, 4)


def stage(net, W, n, lr, name):
    opt = torch.optim.AdamW(net.parameters(), lr=lr)
    sch = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 15) * max(0.1, 1 - s / n))
    for i in range(n):
        x = torch.randn(64, 16)
        loss = F.cross_entropy(net(x), (x @ W).argmax(1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        sch.step()
        if i % 20 == 0:
            print(name, i, round(loss.item(), 4))


net = make()
stage(net, WA, 120, 4e-3, "pretrain")
b = io.BytesIO()
torch.save(net.state_dict(), b)
b.seek(0)
tuned = make()
tuned.load_state_dict(torch.load(b))
stage(tuned, WA + 0.5 * WB, 100, 1e-3, "finetune")
