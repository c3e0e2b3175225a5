# SPDX-License-Identifier: BSD-3-Clause
"""dicomm as the backend that torch takes where a program names none."""

import os

import torch.distributed as dist

from ._group import DEVICES

_ALL = ("1", "on", "yes", "true", "all")
_NONE = ("", "0", "off", "no", "false", "none")


def _check(kinds, where):
    for kind in kinds:
        if kind not in DEVICES:
            raise ValueError(f"{where}: {kind!r} is no kind of device that dicomm"
                             f" serves: {', '.join(DEVICES)}")
    return tuple(kinds)


def set_default(kinds=DEVICES):
    """Have torch take dicomm for these kinds of device ("cpu", ...) where a
    program names no backend: init_process_group(), init_device_mesh(),
    get_default_backend_for_device(). For the groups that are made from now on.

    ValueError: a kind that dicomm does not serve."""
    kinds = (kinds,) if isinstance(kinds, str) else tuple(kinds)
    for kind in _check(kinds, "dicomm_torch.set_default"):
        dist.Backend.default_device_backend_map[kind] = "dicomm"


def asked_for():
    """The kinds of device for which DICOMM_TORCH_DEFAULT asks: "1" for all, or
    a list such as "cpu,cuda"."""
    text = os.environ.get("DICOMM_TORCH_DEFAULT", "").strip().lower()
    if text in _ALL:
        return DEVICES
    if text in _NONE:
        return ()
    return _check([kind.strip() for kind in text.split(",")],
                  f"DICOMM_TORCH_DEFAULT={text}")
