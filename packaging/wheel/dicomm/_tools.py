# SPDX-License-Identifier: BSD-3-Clause
"""The tools of the wheel: this process becomes the program of that name."""

import os
import sys


def run():
    name = os.path.basename(sys.argv[0])
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin")
    program = os.path.join(
        folder, "dicomm-perf" if name.endswith("_perf") else name)
    try:
        os.execv(program, [name] + sys.argv[1:])
    except OSError as error:
        sys.exit(f"{name}: cannot run {program}: {error.strerror}")
