# SPDX-License-Identifier: BSD-3-Clause
"""Where libdicomm is: its library, its header, its file for pkg-config."""

import os

__version__ = "@VERSION@"

_FOLDER = os.path.dirname(os.path.abspath(__file__))


def get_library():
    """The path of libdicomm.so.1, for dlopen() and ctypes."""
    return os.path.join(_FOLDER, "lib", "libdicomm.so.1")


def get_include():
    """The folder of dicomm.h."""
    return os.path.join(_FOLDER, "include")


def get_pkgconfig():
    """The folder of dicomm.pc, for PKG_CONFIG_PATH."""
    return os.path.join(_FOLDER, "lib", "pkgconfig")


def get_compat():
    """The folder of libnccl.so.2 and librccl.so.1 over libdicomm."""
    return os.path.join(_FOLDER, "lib", "dicomm", "compat")
