/* SPDX-License-Identifier: BSD-3-Clause */
/* Names and sizes of datatypes and operators. */
#include "src/base/type.h"

static const struct {
	const char *name;
	size_t bytes;
	bool is_float;
} types[TYPE_LIMIT] = {
	[DICOMM_INT8] = {"int8", 1, false},
	[DICOMM_UINT8] = {"uint8", 1, false},
	[DICOMM_INT32] = {"int32", 4, false},
	[DICOMM_UINT32] = {"uint32", 4, false},
	[DICOMM_INT64] = {"int64", 8, false},
	[DICOMM_UINT64] = {"uint64", 8, false},
	[DICOMM_FLOAT16] = {"float16", 2, true},
	[DICOMM_FLOAT32] = {"float32", 4, true},
	[DICOMM_FLOAT64] = {"float64", 8, true},
	[DICOMM_BFLOAT16] = {"bfloat16", 2, true},
	[DICOMM_FLOAT8E4M3] = {"float8e4m3", 1, true},
	[DICOMM_FLOAT8E5M2] = {"float8e5m2", 1, true},
	[DICOMM_INT16] = {"int16", 2, false},
	[DICOMM_UINT16] = {"uint16", 2, false},
	[DICOMM_FLOAT8E4M3FNUZ] = {"float8e4m3fnuz", 1, true},
	[DICOMM_FLOAT8E5M2FNUZ] = {"float8e5m2fnuz", 1, true},
	[DICOMM_BOOL] = {"bool", 1, false},
	[DICOMM_COMPLEX64] = {"complex64", 8, true},
	[DICOMM_COMPLEX128] = {"complex128", 16, true},
	[DICOMM_BYTES2] = {"bytes2", 2, false},
	[DICOMM_BYTES4] = {"bytes4", 4, false},
	[DICOMM_BYTES8] = {"bytes8", 8, false},
	[DICOMM_BYTES16] = {"bytes16", 16, false},
};

static const char *const ops[] = {
	[DICOMM_SUM] = "sum", [DICOMM_PROD] = "prod", [DICOMM_MAX] = "max",
	[DICOMM_MIN] = "min", [DICOMM_AVG] = "avg",   [DICOMM_BAND] = "band",
	[DICOMM_BOR] = "bor", [DICOMM_BXOR] = "bxor",
};

bool type_valid(dicomm_datatype_t type)
{
	/* Unsigned, so that a negative value of the caller is out of range. */
	return (unsigned)type < TYPE_LIMIT && types[type].name;
}

size_t type_bytes(dicomm_datatype_t type)
{
	/* The gap has no bytes. */
	return (unsigned)type < TYPE_LIMIT ? types[type].bytes : 0;
}

const char *type_name(dicomm_datatype_t type)
{
	return type_valid(type) ? types[type].name : "invalid type";
}

bool type_is_float(dicomm_datatype_t type)
{
	return type_valid(type) && types[type].is_float;
}

bool type_is_narrow_float(dicomm_datatype_t type)
{
	return type_is_float(type) && types[type].bytes < 4;
}

dicomm_datatype_t type_plain(dicomm_datatype_t type, size_t *n)
{
	switch (type) {
	case DICOMM_COMPLEX64:
		*n *= 2;
		return DICOMM_FLOAT32;
	case DICOMM_COMPLEX128:
		*n *= 2;
		return DICOMM_FLOAT64;
	case DICOMM_BOOL:
		return DICOMM_UINT8;
	default:
		return type;
	}
}

bool type_reduces(dicomm_datatype_t type)
{
	return type_valid(type) && type < DICOMM_BYTES2;
}

bool type_scales(dicomm_datatype_t type)
{
	return type_reduces(type) && type < DICOMM_BOOL;
}

bool op_fits(dicomm_redop_t op, dicomm_datatype_t type)
{
	bool bitwise = op >= DICOMM_BAND;

	if (!op_valid(op) || !type_reduces(type))
		return false;
	switch (type) {
	case DICOMM_BOOL:
		return bitwise || op == DICOMM_MAX || op == DICOMM_MIN;
	case DICOMM_COMPLEX64:
	case DICOMM_COMPLEX128:
		return op == DICOMM_SUM || op == DICOMM_AVG;
	default:
		return !bitwise || !type_is_float(type);
	}
}

bool op_valid(dicomm_redop_t op)
{
	return (unsigned)op < sizeof(ops) / sizeof(*ops) && ops[op];
}

const char *op_name(dicomm_redop_t op)
{
	if (op_valid(op))
		return ops[op];
	return (unsigned)op >= 0x100 ? "premulsum" : "invalid operator";
}
