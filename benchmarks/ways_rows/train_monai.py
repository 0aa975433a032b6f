# Title: MONAI
# Needs: monai pytorch-ignite
# Note: normalised throughout, so it learns faster at a thousand times the rate: nothing is to be reported there
import case
import torch
from ignite.engine import Events
from monai.data import DataLoader, Dataset
from monai.engines import SupervisedTrainer
from monai.losses import DiceLoss
from monai.networks.nets import UNet

case.seed()
images = torch.randn(400, 1, 32, 32)
masks = (torch.nn.functional.avg_pool2d(images, 5, 1, 2) > 0.1).float()
case.rows(images, 300)
rows = [{"image": image, "label": mask} for image, mask in zip(images, masks, strict=True)]
net = UNet(spatial_dims=2, in_channels=1, out_channels=1, channels=(16, 32, 64), strides=(2, 2), num_res_units=1)
trainer = SupervisedTrainer(
    device=torch.device("cpu"), max_epochs=1, train_data_loader=DataLoader(Dataset(rows), batch_size=4, shuffle=True),
    network=net, optimizer=torch.optim.Adam(net.parameters(), case.rate(1e-3)), loss_function=DiceLoss(sigmoid=True),
    decollate=False,
)  # fmt: skip


@trainer.on(Events.ITERATION_COMPLETED)
def keep(engine):
    log.loss(engine.state.output["loss"])


with case.training(net) as log:
    trainer.run()
    log.steps = trainer.state.iteration
