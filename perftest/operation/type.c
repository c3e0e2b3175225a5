/* SPDX-License-Identifier: BSD-3-Clause */
/* Names and bit patterns of element types; names of operators. */
#include <math.h>
#include <string.h>

#include "perftest/operation/type.h"

#define INTEGER(name_, id_, bytes_, signed_)                     \
	{                                                        \
		.name = (name_), .id = (id_), .bytes = (bytes_), \
		.is_signed = (signed_)                           \
	}
#define FLOAT(name_, id_, bytes_, exp_, mant_, ...)                           \
	{                                                                     \
		.name = (name_), .id = (id_), .bytes = (bytes_),              \
		.is_float = true, .is_signed = true, .exponent_bits = (exp_), \
		.mantissa_bits = (mant_), .bias = (1 << ((exp_)-1)) - 1,      \
		__VA_ARGS__                                                   \
	}
#define FLOAT_FNUZ(name_, id_, exp_, mant_)                                 \
	{                                                                   \
		.name = (name_), .id = (id_), .bytes = 1, .is_float = true, \
		.is_signed = true, .exponent_bits = (exp_),                 \
		.mantissa_bits = (mant_), .bias = 1 << ((exp_)-1),          \
		.fnuz = true                                                \
	}

const struct type types[] = {
	INTEGER("int8", DICOMM_INT8, 1, true),
	INTEGER("uint8", DICOMM_UINT8, 1, false),
	INTEGER("int32", DICOMM_INT32, 4, true),
	INTEGER("uint32", DICOMM_UINT32, 4, false),
	INTEGER("int64", DICOMM_INT64, 8, true),
	INTEGER("uint64", DICOMM_UINT64, 8, false),
	FLOAT("half", DICOMM_FLOAT16, 2, 5, 10, .finite = false),
	FLOAT("float", DICOMM_FLOAT32, 4, 8, 23, .finite = false),
	FLOAT("double", DICOMM_FLOAT64, 8, 11, 52, .finite = false),
	FLOAT("bfloat16", DICOMM_BFLOAT16, 2, 8, 7, .finite = false),
	FLOAT("f8e4m3", DICOMM_FLOAT8E4M3, 1, 4, 3, .finite = true),
	FLOAT("f8e5m2", DICOMM_FLOAT8E5M2, 1, 5, 2, .finite = false),
	INTEGER("int16", DICOMM_INT16, 2, true),
	INTEGER("uint16", DICOMM_UINT16, 2, false),
	FLOAT_FNUZ("f8e4m3uz", DICOMM_FLOAT8E4M3FNUZ, 4, 3),
	FLOAT_FNUZ("f8e5m2uz", DICOMM_FLOAT8E5M2FNUZ, 5, 2),
};
const int types_n = sizeof(types) / sizeof(types[0]);

static const struct {
	const char *alias, *name;
} aliases[] = {
	{"char", "int8"},           {"int", "int32"},
	{"float16", "half"},        {"float32", "float"},
	{"float64", "double"},      {"bf16", "bfloat16"},
	{"f8e4m3fnuz", "f8e4m3uz"}, {"f8e5m2fnuz", "f8e5m2uz"},
};

const struct type *type_find(const char *name)
{
	for (size_t i = 0; i < sizeof(aliases) / sizeof(aliases[0]); i++)
		if (strcmp(name, aliases[i].alias) == 0)
			name = aliases[i].name;
	for (int i = 0; i < types_n; i++)
		if (strcmp(name, types[i].name) == 0)
			return &types[i];
	return NULL;
}

int type_precision(const struct type *t)
{
	return t->mantissa_bits + 1;
}

double type_smallest(const struct type *t)
{
	return ldexp(1, 1 - t->bias - t->mantissa_bits);
}

static uint64_t nan_bits(const struct type *t)
{
	uint64_t magnitude =
		(1ull << (t->exponent_bits + t->mantissa_bits)) - 1;

	return t->fnuz ? magnitude + 1 : magnitude;
}

/* Returns true if this exponent field is used for infinity and NaN. */
static bool is_special(const struct type *t, uint64_t exponent,
		       uint64_t mantissa)
{
	if (t->fnuz || exponent != (1ull << t->exponent_bits) - 1)
		return false;
	return !t->finite || mantissa == (1ull << t->mantissa_bits) - 1;
}

static uint64_t float_encode(const struct type *t, double value)
{
	uint64_t sign = signbit(value) ? 1 : 0;
	uint64_t one = 1ull << t->mantissa_bits;
	uint64_t exponent = 0, mantissa;
	int e;

	if (isnan(value) || isinf(value))
		return nan_bits(t);
	value = fabs(value);
	e = value > 0 ? ilogb(value) : 1 - t->bias;
	if (e < 1 - t->bias)
		e = 1 - t->bias;
	/* ldexp() is exact here, so the only rounding is to nearest even. */
	mantissa = (uint64_t)nearbyint(ldexp(value, t->mantissa_bits - e));
	if (mantissa == 2 * one) {
		mantissa = one;
		e++;
	}
	if (mantissa >= one) {
		if (e + t->bias >= 1 << t->exponent_bits)
			return nan_bits(t);
		exponent = (uint64_t)(e + t->bias);
		mantissa -= one;
	}
	if (is_special(t, exponent, mantissa))
		return nan_bits(t);
	if (t->fnuz && exponent == 0 && mantissa == 0)
		sign = 0;
	return (sign << (t->exponent_bits + t->mantissa_bits)) |
	       (exponent << t->mantissa_bits) | mantissa;
}

static double float_decode(const struct type *t, uint64_t bits)
{
	uint64_t one = 1ull << t->mantissa_bits;
	uint64_t mantissa = bits & (one - 1);
	uint64_t exponent =
		(bits >> t->mantissa_bits) & ((1ull << t->exponent_bits) - 1);
	bool negative = bits >> (t->exponent_bits + t->mantissa_bits) & 1;
	double value;

	if (t->fnuz && negative && exponent == 0 && mantissa == 0)
		return NAN;
	if (is_special(t, exponent, mantissa)) {
		if (t->finite || mantissa != 0)
			return NAN;
		return negative ? -INFINITY : INFINITY;
	}
	if (exponent == 0)
		value = ldexp((double)mantissa, 1 - t->bias - t->mantissa_bits);
	else
		value = ldexp((double)(one + mantissa),
			      (int)exponent - t->bias - t->mantissa_bits);
	return negative ? -value : value;
}

uint64_t type_encode(const struct type *t, double value)
{
	uint64_t mask = t->bytes == 8 ? ~0ull : (1ull << (8 * t->bytes)) - 1;

	if (t->is_float)
		return float_encode(t, value);
	return (value < 0 ? (uint64_t)(int64_t)value : (uint64_t)value) & mask;
}

double type_decode(const struct type *t, uint64_t bits)
{
	uint64_t sign = 1ull << (8 * t->bytes - 1);

	if (t->is_float)
		return float_decode(t, bits);
	if (t->is_signed)
		return (double)(int64_t)((bits ^ sign) - sign);
	return (double)bits;
}

void type_store(const struct type *t, void *at, size_t index, uint64_t bits)
{
	uint8_t b8 = (uint8_t)bits;
	uint16_t b16 = (uint16_t)bits;
	uint32_t b32 = (uint32_t)bits;
	char *p = (char *)at + index * t->bytes;

	switch (t->bytes) {
	case 1:
		memcpy(p, &b8, 1);
		break;
	case 2:
		memcpy(p, &b16, 2);
		break;
	case 4:
		memcpy(p, &b32, 4);
		break;
	default:
		memcpy(p, &bits, 8);
	}
}

uint64_t type_load(const struct type *t, const void *at, size_t index)
{
	const char *p = (const char *)at + index * t->bytes;
	uint16_t b16;
	uint32_t b32;
	uint64_t b64;

	switch (t->bytes) {
	case 1:
		return *(const uint8_t *)p;
	case 2:
		memcpy(&b16, p, 2);
		return b16;
	case 4:
		memcpy(&b32, p, 4);
		return b32;
	default:
		memcpy(&b64, p, 8);
		return b64;
	}
}

static const struct {
	const char *name;
	dicomm_redop_t op;
} reductions[REDUCTIONS] = {
	[REDUCTION_SUM] = {"sum", DICOMM_SUM},
	[REDUCTION_PROD] = {"prod", DICOMM_PROD},
	[REDUCTION_MAX] = {"max", DICOMM_MAX},
	[REDUCTION_MIN] = {"min", DICOMM_MIN},
	[REDUCTION_AVG] = {"avg", DICOMM_AVG},
	[REDUCTION_MULSUM] = {"mulsum", DICOMM_SUM},
	[REDUCTION_BAND] = {"band", DICOMM_BAND},
	[REDUCTION_BOR] = {"bor", DICOMM_BOR},
	[REDUCTION_BXOR] = {"bxor", DICOMM_BXOR},
};

const char *reduction_name(enum reduction r)
{
	return reductions[r].name;
}

enum reduction reduction_find(const char *name)
{
	int r = 0;

	while (r < REDUCTIONS && strcmp(name, reductions[r].name) != 0)
		r++;
	return (enum reduction)r;
}

dicomm_redop_t reduction_op(enum reduction r)
{
	return reductions[r].op;
}

bool reduction_serves(enum reduction r, const struct type *t)
{
	return !t->is_float || r < REDUCTION_BAND;
}
