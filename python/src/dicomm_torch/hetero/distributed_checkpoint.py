# SPDX-License-Identifier: BSD-3-Clause
"""To and from torch.distributed.checkpoint: each rank writes and reads its
boxes, in whatever way the other side holds the tensors."""

import contextlib
import pathlib

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import default_planner, metadata, planner
from torch.distributed.checkpoint import planner_helpers

from .checkpoint import CheckpointError


class Piece:
    """A box of a tensor: where it begins, and the shape of the whole."""

    def __init__(self, tensor, lo, shape):
        self.tensor = tensor
        self.shape = torch.Size(shape)
        self.chunk = metadata.ChunkStorageMetadata(
            offsets=torch.Size(lo), sizes=tensor.size())


def whole(tensor):
    return Piece(tensor, [0] * tensor.dim(), tensor.shape)


class _SavePlanner(default_planner.DefaultSavePlanner):
    """Of pieces, {path in nested dictionaries: Piece}."""

    def __init__(self, pieces):
        super().__init__()
        self._paths = {".".join(path): path for path in pieces}
        self._pieces = {key: pieces[path] for key, path in self._paths.items()}

    def create_local_plan(self):
        items = [planner.WriteItem(
            index=metadata.MetadataIndex(key, piece.chunk.offsets),
            type=planner.WriteItemType.SHARD,
            tensor_data=planner.TensorWriteData(
                chunk=piece.chunk, size=piece.shape,
                properties=metadata.TensorProperties.create_from_tensor(
                    piece.tensor)))
            for key, piece in self._pieces.items()]
        self.plan = planner.SavePlan(items, planner_data=self._paths)
        return self.plan

    def lookup_object(self, index):
        return self._pieces[index.fqn].tensor


@contextlib.contextmanager
def _told(folder):
    """An exception of theirs, which is no Exception, as one of ours."""
    try:
        yield
    except dcp.CheckpointException as error:
        of = "; ".join(f"rank {rank}: {type(it).__name__}: {it}"
                       for rank, (it, _) in sorted(error.failures.items()))
        raise CheckpointError(f"{folder}: {of}") from error


def save(folder, pieces, group):
    """Write what this rank has, {path: Piece}; by all ranks of a group."""
    # Data of this state beside the index of an older one would be read as it.
    if dist.get_rank(group) == 0:
        pathlib.Path(folder, ".metadata").unlink(missing_ok=True)
    dist.barrier(group=group)
    with _told(folder):
        dcp.save({}, checkpoint_id=folder, process_group=group,
                 planner=_SavePlanner(pieces))


class _LoadPlanner(default_planner.DefaultLoadPlanner):
    def __init__(self, pieces):
        super().__init__()
        self._pieces = pieces

    def create_local_plan(self):
        items = []
        for key, piece in self._pieces.items():
            items += planner_helpers.create_read_items_for_chunk_list(
                key, self.metadata.state_dict_metadata[key], [piece.chunk])
        return planner.LoadPlan(items)

    def lookup_tensor(self, index):
        return self._pieces[index.fqn].tensor


class Reader:
    """Collects what this rank wants of a folder; read() then fills it in."""

    def __init__(self, folder):
        self._folder = folder
        try:
            table = dcp.FileSystemReader(folder).read_metadata()
        except OSError as error:
            raise CheckpointError(f"{folder}: {error}") from None
        self._known = {
            key: of for key, of in table.state_dict_metadata.items()
            if isinstance(of, metadata.TensorStorageMetadata)}
        self._pieces = {}

    def keys(self, before):
        """What is behind `before` in the names of tensors."""
        return [key[len(before):] for key in self._known
                if key.startswith(before)]

    def shape(self, key):
        if key not in self._known:
            raise CheckpointError(f"{self._folder}: {key}: no such tensor")
        return self._known[key].size

    def part(self, key, shape, lo, hi):
        if self.shape(key) != torch.Size(shape):
            raise CheckpointError(
                f"{self._folder}: {key}: {list(self.shape(key))}: wanted"
                f" {list(shape)}")
        tensor = torch.empty([b - a for a, b in zip(lo, hi)],
                             dtype=self._known[key].properties.dtype)
        self._pieces[key] = Piece(tensor, lo, shape)
        return tensor

    def whole(self, key):
        shape = self.shape(key)
        return self.part(key, shape, [0] * len(shape), shape)

    def read(self, group):
        """By all ranks of a group."""
        with _told(self._folder):
            dcp.load({}, checkpoint_id=self._folder, process_group=group,
                     planner=_LoadPlanner(self._pieces))
