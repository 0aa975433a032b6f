# Title: Keras 3 on torch
# Needs: keras
# Note: its own Adam; losses from the running means that Keras logs
import os

os.environ["KERAS_BACKEND"] = "torch"
import case
import keras

case.seed()
keras.utils.set_random_seed(0)


class Losses(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        means.append(logs["loss"])


means = []
inputs, targets = case.table()
model = keras.Sequential([
    keras.layers.Input((case.WIDE,)), keras.layers.Dense(768, activation="gelu"),
    keras.layers.Dense(768, activation="gelu"), keras.layers.Dense(1),
])  # fmt: skip
model.compile(optimizer=keras.optimizers.Adam(case.rate(1e-3)), loss="mse")
with case.training(model) as log:
    model.fit(inputs.numpy(), targets.numpy(), batch_size=case.BATCH, epochs=1, verbose=0, callbacks=[Losses()])
    log.running_means(means)
