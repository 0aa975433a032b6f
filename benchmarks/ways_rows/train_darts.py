# Title: Darts
# Needs: darts pytorch-lightning
# Note: TiDE; losses by a Lightning callback
import case
import numpy as np
import pytorch_lightning
from darts import TimeSeries
from darts.models import TiDEModel

case.seed()


trained = []


class Losses(pytorch_lightning.Callback):
    def on_train_start(self, trainer, module):
        trained.append(module)

    def on_train_batch_end(self, trainer, module, outputs, batch, place):
        log.loss(outputs["loss"])


values = np.sin(np.arange(3000) / 9).astype("float32") + 0.1 * np.random.randn(3000).astype("float32")
series = TimeSeries.from_values(case.rows(values.reshape(-1, 1), 1500))
model = TiDEModel(
    32, 8, hidden_size=128, batch_size=32, n_epochs=1, optimizer_kwargs={"lr": case.rate(1e-3)}, random_state=0,
    pl_trainer_kwargs={"accelerator": "cpu", "callbacks": [Losses()], "enable_progress_bar": False},
)  # fmt: skip
with case.training(lambda: [one.detach() for one in trained[0].parameters()]) as log:
    model.fit(series)
