# Title: Accelerate
# Needs: accelerate
# Note: two micro-batches a step
import case
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

case.seed()
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = case.mlp()
optimizer = torch.optim.AdamW(model.parameters(), lr=case.rate(1e-3))
loader = DataLoader(TensorDataset(*case.table()), batch_size=case.BATCH, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
losses = []
with case.training(model) as log:
    for inputs, targets in loader:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            losses.append(loss.item())
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                log.loss(sum(losses) / len(losses))
                losses.clear()
            optimizer.step()
            optimizer.zero_grad()
