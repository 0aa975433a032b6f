# Title: NeuralForecast
# Needs: neuralforecast
# Note: NHITS; losses by a Lightning callback; the NaN is in an output inside of the net, a NaN in the data is refused
import case
import numpy as np
import pandas as pd
import pytorch_lightning
from neuralforecast import NeuralForecast
from neuralforecast.models import NHITS

case.seed()


class Losses(pytorch_lightning.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, place):
        log.loss(outputs["loss"])


names = np.repeat([f"series{place}" for place in range(40)], 300)
values = np.sin(np.arange(300) / 9)[None] + 0.1 * np.random.randn(40, 300)
frame = pd.DataFrame({
    "unique_id": names, "ds": np.tile(pd.date_range("2020-01-01", periods=300), 40), "y": values.reshape(-1),
})  # fmt: skip
model = NHITS(
    h=12, input_size=48, max_steps=100, learning_rate=case.rate(1e-3), batch_size=8, random_seed=0,
    scaler_type="identity", accelerator="cpu", enable_progress_bar=False, callbacks=[Losses()], logger=False,
)  # fmt: skip
case.poison(model.blocks[1].layers, 60)
forecast = NeuralForecast(models=[model], freq="D")
with case.training(lambda: [one.detach() for one in forecast.models[0].parameters()]) as log:
    forecast.fit(frame)
