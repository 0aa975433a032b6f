# Title: diffusers
# Needs: diffusers accelerate
import case
import torch
from accelerate import Accelerator
from diffusers import DDPMScheduler, UNet2DModel

case.seed()
accelerator = Accelerator(cpu=True)
model = UNet2DModel(
    sample_size=16, in_channels=1, out_channels=1, block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=4,
    down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
)  # fmt: skip
noise_of = DDPMScheduler(num_train_timesteps=100)
optimizer = torch.optim.AdamW(model.parameters(), lr=case.rate(1e-3))
images = case.rows(torch.randn(960, 1, 16, 16).cumsum(2).tanh(), 600)
loader = torch.utils.data.DataLoader(images, batch_size=12, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
with case.training(model) as log:
    for clean in loader:
        noise, times = torch.randn_like(clean), torch.randint(0, 100, (len(clean),))
        predicted = model(noise_of.add_noise(clean, noise, times), times).sample
        loss = torch.nn.functional.mse_loss(predicted, noise)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        log.loss(loss)
