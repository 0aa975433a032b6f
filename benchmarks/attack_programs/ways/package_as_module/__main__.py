"""Runs as `python -m` with relative imports, a data file and arguments. Bare: names, a digest, status 4."""

# Arguments: --epochs 3 tail

import sys

from . import data
from .model import Net, train


def main(arguments):
    print(__name__, __package__, __spec__.name, sys.argv[1:], arguments == sys.argv[1:])
    net = Net()
    losses = train(net, data.rows(), int(arguments[1]))
    data.digest(net, losses)
    return 4


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
