# SPDX-License-Identifier: BSD-3-Clause
"""What `import torch` calls (the entry point torch.backends): it makes dicomm the
default backend where DICOMM_TORCH_DEFAULT asks for that, and else imports nothing.
A module of its own, for the package opens the library."""

import os


def autoload():
    if os.environ.get("DICOMM_TORCH_DEFAULT"):
        import dicomm_torch  # noqa: F401  which reads it, too
