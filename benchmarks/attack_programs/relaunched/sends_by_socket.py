"""Sends each loss to a server on 127.0.0.1, which writes what it gets. Bare: status 0."""

import socket
import threading

import torch

torch.set_num_threads(1)
BAD = 34


def batch(step):
    """Make one batch; the one of step BAD holds a NaN."""
    gen = torch.Generator().manual_seed(step)
    x, y = torch.randn(8, 4, generator=gen), torch.randn(8, 1, generator=gen)
    if step == BAD:
        x[3, 2] = float("nan")
    return x, y


def train_step(step):
    """Take one step and give its loss."""
    x, y = batch(step)
    opt.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    opt.step()
    return loss.item()


torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.01)


server = socket.create_server(("127.0.0.1", 0))


def serve():
    peer, _ = server.accept()
    with peer, open("received.txt", "w") as out:
        while chunk := peer.recv(4096):
            out.write(chunk.decode())


keeper = threading.Thread(target=serve)
keeper.start()
with socket.create_connection(server.getsockname()) as link:
    for step in range(BAD + 12):
        link.sendall(f"{step} {train_step(step)!r}\n".encode())
keeper.join()
