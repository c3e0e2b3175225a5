# SPDX-License-Identifier: BSD-3-Clause
"""libdicomm as a communication backend of torch.distributed.

    torch.distributed.init_process_group("dicomm")

torch 2.14 and later find the backend by its entry point; before, import this
package first. docs/pytorch.md of libdicomm says what works and how.
"""

import types as _types_of_python
from importlib import metadata as _metadata

import torch.distributed as dist

from . import _communicator, _completion, _default, _detail, _group
from . import _operations, _types
from . import _library as _lib
from . import _watched
from ._default import set_default
from ._explain import explain
from ._group import DEVICES, create

try:
    __version__ = _metadata.version("dicomm-torch")
except _metadata.PackageNotFoundError:  # run from the source
    __version__ = "unknown"

DistTimeoutError = _lib.DistTimeoutError

__all__ = ["DistTimeoutError", "explain", "register", "set_default"]


def register():
    """Make the name "dicomm" known to torch.distributed; again does
    nothing."""
    if "DICOMM" in dist.Backend._plugins:
        return
    defaults = dict(dist.Backend.default_device_backend_map)
    dist.Backend.register_backend(
        "dicomm", create, extended_api=True, devices=list(DEVICES))
    # Serve a kind of device if asked to, but be the choice of torch only where
    # the user says so.
    dist.Backend.default_device_backend_map.clear()
    dist.Backend.default_device_backend_map.update(defaults)
    set_default(_default.asked_for())


def _keep_out_of_graphs():
    """Tell torch.compile that the code of this package is not to be compiled:
    DDP calls it while it runs compiled code. Costs nothing at run time."""
    try:
        from torch._C._dynamo import eval_frame

        action = eval_frame._FrameAction
        strategy = eval_frame._FrameExecStrategy(action.SKIP, action.DEFAULT)
        mark = eval_frame.set_code_exec_strategy
    except (ImportError, AttributeError):
        return

    def skip(value):
        value = getattr(value, "fget", None) or value  # of a property
        value = getattr(value, "__func__", value)  # of a static method
        if isinstance(value, _types_of_python.FunctionType):
            mark(value.__code__, strategy)
            for constant in value.__code__.co_consts:  # functions inside
                if isinstance(constant, _types_of_python.CodeType):
                    mark(constant, strategy)

    for module in (_communicator, _completion, _detail, _group, _operations,
                   _types, _watched, _lib):
        for value in vars(module).values():
            if getattr(value, "__module__", None) != module.__name__:
                continue
            skip(value)
            if isinstance(value, type):
                for member in vars(value).values():
                    skip(member)


_keep_out_of_graphs()
register()
