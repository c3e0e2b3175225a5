# SPDX-License-Identifier: BSD-3-Clause
"""libdicomm as a communication backend of torch.distributed.

    torch.distributed.init_process_group("dicomm")

torch 2.14 and later find the backend by its entry point; before, import this
package first. docs/pytorch.md of libdicomm says what works and how.
"""

import torch.distributed as dist

from . import _library as _lib
from ._explain import explain
from ._group import DEVICES, create

DistTimeoutError = _lib.DistTimeoutError

__all__ = ["DistTimeoutError", "explain", "register"]


def register():
    """Make the name "dicomm" known to torch.distributed; again does
    nothing."""
    if "DICOMM" in dist.Backend._plugins:
        return
    defaults = dict(dist.Backend.default_device_backend_map)
    dist.Backend.register_backend(
        "dicomm", create, extended_api=True, devices=list(DEVICES))
    # Serve a kind of device if asked to, but be the choice of torch for none.
    dist.Backend.default_device_backend_map.clear()
    dist.Backend.default_device_backend_map.update(defaults)


register()
