# Title: Lightning Fabric
# Needs: lightning
import case
import torch
from lightning.fabric import Fabric
from torch.utils.data import DataLoader, TensorDataset

case.seed()
fabric = Fabric(accelerator="cpu", devices=1)
model = case.mlp()
optimizer = torch.optim.AdamW(model.parameters(), lr=case.rate(1e-3))
model, optimizer = fabric.setup(model, optimizer)
loader = fabric.setup_dataloaders(DataLoader(TensorDataset(*case.table()), batch_size=case.BATCH, shuffle=True))
with case.training(model) as log:
    for inputs, targets in loader:
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        fabric.backward(loss)
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
        log.loss(loss)
