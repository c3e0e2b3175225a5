# SPDX-License-Identifier: BSD-3-Clause
"""Types and operators of torch as those of libdicomm.

What the library cannot reduce it still moves: complex32 as pairs of float16,
everything unknown as elements of so many bytes. Type and count are compared
between the ranks.
"""

import ctypes

import torch
from torch.distributed import ReduceOp

from . import _library as lib

INT8, UINT8, INT32, UINT32, INT64, UINT64 = range(6)
FLOAT16, FLOAT32, FLOAT64, BFLOAT16, FLOAT8E4M3, FLOAT8E5M2 = range(6, 12)
INT16, UINT16, FLOAT8E4M3FNUZ, FLOAT8E5M2FNUZ = range(16, 20)
BOOL, COMPLEX64, COMPLEX128, BYTES2, BYTES4, BYTES8, BYTES16 = range(20, 27)
SUM, PROD, MAX, MIN, AVG = range(5)
BAND, BOR, BXOR = range(16, 19)

# (type of the library, elements of it in one of torch)
_TYPES = {
    "int8": (INT8, 1),
    "uint8": (UINT8, 1),
    "bool": (BOOL, 1),
    "int16": (INT16, 1),
    "uint16": (UINT16, 1),
    "int32": (INT32, 1),
    "uint32": (UINT32, 1),
    "int64": (INT64, 1),
    "uint64": (UINT64, 1),
    "float16": (FLOAT16, 1),
    "bfloat16": (BFLOAT16, 1),
    "float32": (FLOAT32, 1),
    "float64": (FLOAT64, 1),
    "complex32": (FLOAT16, 2),
    "complex64": (COMPLEX64, 1),
    "complex128": (COMPLEX128, 1),
    "float8_e4m3fn": (FLOAT8E4M3, 1),
    "float8_e5m2": (FLOAT8E5M2, 1),
    "float8_e4m3fnuz": (FLOAT8E4M3FNUZ, 1),
    "float8_e5m2fnuz": (FLOAT8E5M2FNUZ, 1),
}
TYPES = {
    getattr(torch, name): value
    for name, value in _TYPES.items()
    if hasattr(torch, name)
}

# What a real factor scales.
_PARTS = {torch.complex64: (FLOAT32, 2), torch.complex128: (FLOAT64, 2)}

# Of everything else, by the bytes of an element.
_BYTES = {1: UINT8, 2: BYTES2, 4: BYTES4, 8: BYTES8, 16: BYTES16}

_RED = ReduceOp.RedOpType
_OPERATORS = {
    int(_RED.SUM): SUM,
    int(_RED.AVG): AVG,
    int(_RED.PRODUCT): PROD,
    int(_RED.MIN): MIN,
    int(_RED.MAX): MAX,
    int(_RED.BAND): BAND,
    int(_RED.BOR): BOR,
    int(_RED.BXOR): BXOR,
}
_PREMUL_SUM = int(_RED.PREMUL_SUM)
_NAMES = {int(value): name for name, value in _RED.__members__.items()}

# A sum is true if any is, a product if all are.
_OF_BOOL = {SUM: BOR, MAX: MAX, BOR: BOR, PROD: BAND, MIN: MIN, BAND: BAND,
            BXOR: BXOR}
_OF_COMPLEX = (SUM, AVG)

_SCALARS = {
    INT8: ctypes.c_int8, UINT8: ctypes.c_uint8,
    INT16: ctypes.c_int16, UINT16: ctypes.c_uint16,
    INT32: ctypes.c_int32, UINT32: ctypes.c_uint32,
    INT64: ctypes.c_int64, UINT64: ctypes.c_uint64,
    FLOAT32: ctypes.c_float, FLOAT64: ctypes.c_double,
}


def moved(dtype, itemsize):
    """How a type is moved: (type of the library, how many in an element)."""
    return TYPES.get(dtype) or (_BYTES[itemsize], 1)


def _factor(op):
    """The factor of a PREMUL_SUM: a number, or a tensor of one element."""
    if hasattr(op, "factor"):
        return op.factor
    return op.__getstate__()[1]  # torch 2.9 to 2.13


def _scalar(factor, dtype, kind):
    """A factor as one element of a type, in host memory."""
    if isinstance(factor, torch.Tensor):
        factor = factor.item()
    of_kind = _SCALARS.get(kind)
    if of_kind:
        integer = kind not in (FLOAT32, FLOAT64)
        return of_kind(int(factor) if integer else float(factor))
    if dtype == torch.complex32:
        dtype = torch.float16
    value = torch.tensor([factor], dtype=torch.float64).to(dtype)
    return ctypes.create_string_buffer(
        ctypes.string_at(value.data_ptr(), value.element_size()))


def operator_name(op):
    """Of a ReduceOp or a RedOpType, for people."""
    return _NAMES.get(int(getattr(op, "op", op)), str(op))


class Reduction:
    """An operator of torch on a type: what the library is to be told.

    type and multiple are as of moved(); op is the operator's number. An
    operator that had to be created for one call is destroyed by close(),
    which may come as soon as the operation was called.
    """

    __slots__ = ("type", "multiple", "op", "comm")

    def __init__(self, type, multiple, op, comm=None):
        self.type = type
        self.multiple = multiple
        self.op = op
        self.comm = comm

    def close(self):
        if self.comm:
            lib.library.dicomm_redop_destroy(self.op, self.comm)


_known = {}


def reduction(op, dtype, comm):
    """The Reduction for an operator and a type.

    op is a ReduceOp or a RedOpType; comm the handle that a PREMUL_SUM is
    created on. Refuses what makes no sense (TypeError, ValueError).
    """
    number = int(getattr(op, "op", op))
    known = _known.get((number, dtype))
    if known:
        return known
    name = operator_name(op)
    if dtype not in TYPES:
        raise TypeError(f"dicomm: tensors of {dtype} can be moved but not"
                        f" reduced (operator {name})")
    kind, multiple = TYPES[dtype]
    if number == _PREMUL_SUM:
        if dtype == torch.bool:
            raise ValueError("dicomm: PREMUL_SUM of torch.bool")
        kind, multiple = _PARTS.get(dtype, (kind, multiple))
        scalar = _scalar(_factor(op), dtype, kind)
        created = ctypes.c_int()
        lib.check(
            lib.library.dicomm_redop_create_premulsum(
                ctypes.byref(created), ctypes.addressof(scalar), kind,
                lib.SCALAR_HOST_IMMEDIATE, comm),
            comm, "premul_sum")
        return Reduction(kind, multiple, created.value, comm)
    if number not in _OPERATORS:
        raise ValueError(f"dicomm: unknown operator {name}")
    value = _OPERATORS[number]
    if dtype == torch.bool:
        if value not in _OF_BOOL:
            raise ValueError(f"dicomm: operator {name} of torch.bool")
        value = _OF_BOOL[value]
    elif dtype.is_complex and value not in _OF_COMPLEX:
        raise ValueError(f"dicomm: operator {name} of {dtype}")
    elif dtype.is_floating_point and value in (BAND, BOR, BXOR):
        raise ValueError(f"dicomm: operator {name} of {dtype}: bitwise"
                         " operators need integers")
    known = Reduction(kind, multiple, value)
    _known[number, dtype] = known
    return known
