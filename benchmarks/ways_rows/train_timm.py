# Title: timm
# Needs: timm
# Note: its own Lion and its scheduler
import case
import timm
import torch
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler

case.seed()
model = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, num_classes=10, depth=4)
optimizer = create_optimizer_v2(model, opt="lion", lr=case.rate(1e-4), weight_decay=0.05)
schedule = CosineLRScheduler(optimizer, t_initial=100, warmup_t=10, warmup_lr_init=1e-6, t_in_epochs=False)
classes = torch.randint(0, 10, (1600,))
images = case.rows(torch.randn(1600, 3, 32, 32) * 0.5 + classes.view(-1, 1, 1, 1) / 5, 900)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images, classes), batch_size=16, shuffle=True)
model.train()
with case.training(model) as log:
    for update, (batch, wanted) in enumerate(loader, 1):
        loss = torch.nn.functional.cross_entropy(model(batch), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step_update(update)
        log.loss(loss)
