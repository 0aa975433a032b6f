"""Keeps a launched script offline: trackers, hubs and uploads by their environment variables, other hosts by address.

A relaunched script would send its steps to its tracker a second time. Connections to this machine stay allowed: process
groups, loader workers and local servers need them.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from steadytrain.capture.hooks.import_hook import after_import
from steadytrain.replay.programs import NETWORK_VARIABLE

TRACKERS: Mapping[str, str] = {
    "WANDB_MODE": "disabled",
    "WANDB_DISABLED": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "COMET_MODE": "disabled",
    "COMET_START_ONLINE": "0",
    "NEPTUNE_MODE": "offline",
    "CLEARML_OFFLINE_MODE": "1",
    "SWANLAB_MODE": "disabled",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "SENTRY_DSN": "",
    "OTEL_SDK_DISABLED": "true",
    "DD_TRACE_ENABLED": "false",
}
"""Variables of trackers and telemetry, by what switches them off."""

OFFLINE: Mapping[str, str] = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "GIT_SSH_COMMAND": "false",
    "GIT_TERMINAL_PROMPT": "0",
    **dict.fromkeys(
        ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://[::1]:9"
    ),
    **dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1"),
}
"""For programs and C libraries, whose connections Python does not report. Port 9 answers nothing."""

FOLDERS = {"COMET_OFFLINE_DIRECTORY": "comet", "WANDB_DIR": "wandb", "CLEARML_CACHE_DIR": "clearml"}
DISABLED = {"wandb": "mode", "swanlab": "mode"}
"""Trackers whose ``init`` takes how it works; the script's own argument would override the variable."""

SERVERS = {"mlflow": ("set_tracking_uri", "set_registry_uri")}
"""Functions that name a server, which may be one on this machine. A launched script calls them without effect."""

EVENT_WRITERS = ("tensorboard.summary.writer.event_file_writer", "tensorboardX.event_file_writer")
"""Modules whose ``EventFileWriter`` writes the events of TensorBoard from a thread. A fork for a trial lacks that
thread, so that the queue would fill up for ever, and the files of a launched script are deleted anyway."""


class NoEvents:
    """An ``EventFileWriter`` that makes its folder and writes nothing."""

    def __init__(self, logdir: str, *args: Any, **kwargs: Any) -> None:
        self._logdir = str(logdir)
        os.makedirs(self._logdir, exist_ok=True)

    def get_logdir(self) -> str:
        return self._logdir

    def add_event(self, event: Any) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def reopen(self) -> None: ...


def go_offline(scratch: Path, environment: dict[str, str] | os._Environ[str] = os.environ) -> bool:
    """Switches off trackers, and the network unless ``NETWORK_VARIABLE`` is set. Returns whether there is a network."""
    has_network = bool(environment.get(NETWORK_VARIABLE))
    environment.update(TRACKERS)
    for name, folder in FOLDERS.items():
        environment[name] = str(scratch / folder)
    environment["MLFLOW_TRACKING_URI"] = environment["MLFLOW_REGISTRY_URI"] = (scratch / "mlflow").as_uri()
    if not has_network:
        environment.update(OFFLINE)
    disable_trackers()
    return has_network


def disable_trackers() -> None:
    """What the script's own arguments would override, as soon as a tracker is imported in this process."""
    for name, argument in DISABLED.items():
        after_import(name, partial(_disable, name, argument))
    for name, functions in SERVERS.items():
        after_import(name, partial(_keep_server, name, functions))
    for name in EVENT_WRITERS:
        after_import(name, partial(_write_no_events, name))


def _write_no_events(name: str) -> None:
    module: Any = sys.modules[name]
    module.EventFileWriter = NoEvents


def _keep_server(name: str, functions: tuple[str, ...]) -> None:
    module: Any = sys.modules[name]
    for function in functions:
        if callable(getattr(module, function, None)):
            setattr(module, function, lambda *args, **kwargs: None)


def _disable(name: str, argument: str) -> None:
    module: Any = sys.modules[name]
    theirs = getattr(module, "init", None)
    if callable(theirs):
        module.init = lambda *args, **kwargs: theirs(*args, **{**kwargs, argument: "disabled"})


def is_local(address: Any) -> bool:
    """Whether a socket's address is on this machine: a path, a loopback address, or one of its own addresses."""
    if not isinstance(address, tuple) or not address or not isinstance(address[0], str | bytes):
        return True  # AF_UNIX, netlink, ...
    host = os.fsdecode(address[0]).partition("%")[0]
    if host in ("", "localhost", "<broadcast>"):
        return host != "<broadcast>"
    try:
        parsed = ipaddress.ip_address(host)
    except ValueError:
        return host == socket.gethostname()
    if parsed.is_loopback or parsed.is_unspecified:
        return True
    with suppress(OSError):
        family = socket.AF_INET if parsed.version == 4 else socket.AF_INET6
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))  # possible only with an own address
        return True
    return False
