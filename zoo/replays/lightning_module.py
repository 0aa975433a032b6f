"""Lightning: forward and backward run inside the optimizer's step, a schedule, a validation loop."""

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4))

    def training_step(self, batch, number):
        inputs, targets = batch
        outputs = self.layers(inputs)
        loss = nn.functional.cross_entropy(outputs, targets)
        if self.global_step + 1 == 90:
            loss = loss + (outputs.sum() * 0).sqrt()  # <- bites
        return loss

    def validation_step(self, batch, number):
        inputs, targets = batch
        self.log("validation", nn.functional.cross_entropy(self.layers(inputs), targets))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1)}


torch.manual_seed(0)
data = TensorDataset(torch.randn(320, 8), torch.randint(0, 4, (320,)))
trainer = lightning.Trainer(
    max_epochs=3,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    num_sanity_val_steps=0,
)
trainer.fit(Module(), DataLoader(data, batch_size=8, shuffle=True), DataLoader(data, batch_size=32))
