# Title: Ray Train
# Needs: ray[train]
# Note: one worker process; its weights and losses come back as a report
import case
import ray
import torch
from ray.train import RunConfig, ScalingConfig, report
from ray.train.torch import TorchTrainer, prepare_model
from torch.utils.data import DataLoader, TensorDataset


def loop(settings):
    case.seed()
    model = prepare_model(case.mlp(), move_to_device=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=case.rate(1e-3))
    with case.training(model) as log:
        for inputs, targets in DataLoader(TensorDataset(*case.table()), batch_size=case.BATCH, shuffle=True):
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            log.loss(loss)
    report({"loss": log.losses[-1]})


variables = {name: value for name, value in case.os.environ.items() if name.startswith("WAYS_")}
ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": variables})
TorchTrainer(
    loop, scaling_config=ScalingConfig(num_workers=1, resources_per_worker={"CPU": 1}),
    run_config=RunConfig(storage_path=case.os.path.abspath("ray")),
).fit()  # fmt: skip
