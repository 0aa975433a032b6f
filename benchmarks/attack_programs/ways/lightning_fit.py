"""A LightningModule with a scheduler, validation and clipping, trained by fit twice. Bare: a digest, status 0."""

import hashlib
import logging
import warnings

import torch

torch.set_num_threads(1)


def digest(*things):
    """Print one hash of every weight, state and loss, bit for bit."""
    sha = hashlib.sha256()

    def eat(thing):
        if isinstance(thing, torch.Tensor):
            thing = thing.detach().cpu()
            thing = thing.to_dense() if thing.is_sparse else thing
            sha.update(f"{thing.dtype}{tuple(thing.shape)}".encode())
            thing = torch.view_as_real(thing) if thing.is_complex() else thing
            sha.update(bytes(thing.contiguous().reshape(-1).view(torch.uint8).tolist()))
        elif isinstance(thing, (torch.nn.Module, torch.optim.Optimizer)):
            eat(thing.state_dict())
        elif isinstance(thing, dict):
            for key, value in thing.items():
                sha.update(repr(key).encode() if isinstance(key, (str, int, float)) else b"key")
                eat(value)
        elif isinstance(thing, (list, tuple)):
            for item in thing:
                eat(item)
        else:
            sha.update((thing.hex() if isinstance(thing, float) else repr(thing)).encode())

    for thing in things:
        eat(thing)
    print("digest", sha.hexdigest())


def net(seed=0):
    """Make the same small network each time."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def data(seed=1, rows=32):
    """Make the same samples and targets each time."""
    gen = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 4, generator=gen), torch.randn(rows, 1, generator=gen)


warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
import lightning as L  # noqa: E402, N812
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402


class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.save_hyperparameters()
        self.model, self.losses = net(), []

    def training_step(self, batch, index):
        loss = torch.nn.functional.mse_loss(self.model(batch[0]), batch[1])
        self.log("loss", loss)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch, index):
        self.log("held", torch.nn.functional.mse_loss(self.model(batch[0]), batch[1]))

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=0.01)
        return {"optimizer": opt, "lr_scheduler": torch.optim.lr_scheduler.StepLR(opt, 2)}


L.seed_everything(0)
module = Module()
loader = DataLoader(TensorDataset(*data()), batch_size=8)
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
for epochs in (3, 2):
    trainer = L.Trainer(max_epochs=epochs, accelerator="cpu", gradient_clip_val=0.5, **quiet)
    trainer.fit(module, loader, loader)
    print(trainer.global_step, trainer.callback_metrics["held"].item())
digest(module, module.losses)
