# expect: sick
# fault: pure bfloat16 weights, the updates are rounded away
# onset_step: 0
# says: (?i)(bf16|bfloat16|\bhalf.?precision|precision|\bround|lost update|updates?.{0,40}(lost|vanish|swallow|too small))
# note: model.bfloat16() is called to save memory and the fine-tuning rate is 2e-5 without float32 master weights; an update is smaller than half a unit in the last place.
import torch
from torch import nn

torch.set_num_threads(1)


def build():
    torch.manual_seed(2)
    return nn.Sequential(
        nn.Linear(32, 128),
        nn.GELU(),
        nn.LayerNorm(128),
        nn.Linear(128, 128),
        nn.GELU(),
        nn.LayerNorm(128),
        nn.Linear(128, 6),
    )


def main():
    model = build()
    model = model.to(torch.bfloat16)
    dtype = next(model.parameters()).dtype
    teacher = torch.randn(32, 6, generator=torch.Generator().manual_seed(1))
    opt = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.0)
    g = torch.Generator().manual_seed(3)
    for step in range(240):
        x = torch.randn(64, 32, generator=g)
        y = (x @ teacher).argmax(1)
        loss = nn.functional.cross_entropy(model(x.to(dtype)).float(), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print("step", step, "loss", round(loss.item(), 4))
    x = torch.randn(2000, 32, generator=g)
    y = (x @ teacher).argmax(1)
    print("final loss", nn.functional.cross_entropy(model(x.to(dtype)).float(), y).item())


main()
