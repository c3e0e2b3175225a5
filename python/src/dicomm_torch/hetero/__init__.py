# SPDX-License-Identifier: BSD-3-Clause
"""Training on unlike devices by a plan of dicomm-plan.

    trainer = hetero.Trainer(hetero.read_plan("plan.json"), layers, loss,
                             activation=(tokens, hidden))
    loss = trainer.step(inputs, targets)

docs/hetero.md of libdicomm says how, and what it does not do.
"""

from . import huggingface
from .checkpoint import CheckpointError
from .comparison import compare, compare_ranks
from .experts import Experts
from .failures import StageError
from .layers import Attention, ColumnLinear, FeedForward, RowLinear, build_all
from .plan import Plan, PlanError, read_plan
from .pretrained import Weights
from .profile import Profile
from .tied import tie
from .trainer import Trainer

__all__ = [
    "Attention", "CheckpointError", "ColumnLinear", "Experts", "FeedForward",
    "Plan", "PlanError", "Profile", "RowLinear", "StageError", "Trainer",
    "Weights", "build_all", "compare", "compare_ranks", "huggingface",
    "read_plan", "tie"]
