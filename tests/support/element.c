/* SPDX-License-Identifier: BSD-3-Clause */
/* Inputs and expected results, one element at a time. */
#include "tests/support/element.h"

#include <math.h>
#include <string.h>

const dicomm_datatype_t element_types[] = {
	DICOMM_INT8,          DICOMM_UINT8,      DICOMM_INT16,
	DICOMM_UINT16,        DICOMM_INT32,      DICOMM_UINT32,
	DICOMM_INT64,         DICOMM_UINT64,     DICOMM_FLOAT16,
	DICOMM_BFLOAT16,      DICOMM_FLOAT32,    DICOMM_FLOAT64,
	DICOMM_FLOAT8E4M3,    DICOMM_FLOAT8E5M2, DICOMM_FLOAT8E4M3FNUZ,
	DICOMM_FLOAT8E5M2FNUZ};
const int element_ntypes = sizeof(element_types) / sizeof(*element_types);

const dicomm_datatype_t element_more_types[] = {
	DICOMM_BOOL,   DICOMM_COMPLEX64, DICOMM_COMPLEX128, DICOMM_BYTES2,
	DICOMM_BYTES4, DICOMM_BYTES8,    DICOMM_BYTES16};
const int element_nmore_types =
	sizeof(element_more_types) / sizeof(*element_more_types);

const dicomm_redop_t element_ops[] = {DICOMM_SUM, DICOMM_PROD, DICOMM_MAX,
				      DICOMM_MIN, DICOMM_AVG,  DICOMM_BAND,
				      DICOMM_BOR, DICOMM_BXOR};
const int element_nops = sizeof(element_ops) / sizeof(*element_ops);

struct format {
	const char *name;
	size_t bytes;
	bool is_float, is_signed;
	int exponent_bits, mantissa_bits, bias;
	int range; /* inputs lie within -range .. range */
};

static const struct format formats[] = {
	[DICOMM_INT8] = {"int8", 1, .is_signed = true},
	[DICOMM_UINT8] = {"uint8", 1, .is_signed = false},
	[DICOMM_INT16] = {"int16", 2, .is_signed = true},
	[DICOMM_UINT16] = {"uint16", 2, .is_signed = false},
	[DICOMM_INT32] = {"int32", 4, .is_signed = true},
	[DICOMM_UINT32] = {"uint32", 4, .is_signed = false},
	[DICOMM_INT64] = {"int64", 8, .is_signed = true},
	[DICOMM_UINT64] = {"uint64", 8, .is_signed = false},
	[DICOMM_FLOAT16] = {"float16", 2, true, true, 5, 10, 15, 100},
	[DICOMM_BFLOAT16] = {"bfloat16", 2, true, true, 8, 7, 127, 20},
	[DICOMM_FLOAT32] = {"float32", 4, true, true, 8, 23, 127, 1000},
	[DICOMM_FLOAT64] = {"float64", 8, true, true, 11, 52, 1023, 1000},
	[DICOMM_FLOAT8E4M3] = {"float8e4m3", 1, true, true, 4, 3, 7, 1},
	[DICOMM_FLOAT8E5M2] = {"float8e5m2", 1, true, true, 5, 2, 15, 1},
	[DICOMM_FLOAT8E4M3FNUZ] = {"float8e4m3fnuz", 1, true, true, 4, 3, 8, 1},
	[DICOMM_FLOAT8E5M2FNUZ] = {"float8e5m2fnuz", 1, true, true, 5, 2, 16,
				   1},
	[DICOMM_BOOL] = {"bool", 1, .is_signed = false},
	[DICOMM_COMPLEX64] = {"complex64", 8, .is_signed = true},
	[DICOMM_COMPLEX128] = {"complex128", 16, .is_signed = true},
	[DICOMM_BYTES2] = {"bytes2", 2, .is_signed = false},
	[DICOMM_BYTES4] = {"bytes4", 4, .is_signed = false},
	[DICOMM_BYTES8] = {"bytes8", 8, .is_signed = false},
	[DICOMM_BYTES16] = {"bytes16", 16, .is_signed = false},
};

/* The type of both parts of a complex number; of others, the type itself */
static dicomm_datatype_t part_of(dicomm_datatype_t type)
{
	if (type == DICOMM_COMPLEX64)
		return DICOMM_FLOAT32;
	return type == DICOMM_COMPLEX128 ? DICOMM_FLOAT64 : type;
}

/* Imaginary parts are this multiple of real ones. */
#define IMAGINARY (-3)

size_t element_bytes(dicomm_datatype_t type)
{
	return formats[type].bytes;
}

const char *element_name(dicomm_datatype_t type)
{
	return formats[type].name;
}

bool element_is_float(dicomm_datatype_t type)
{
	return formats[type].is_float;
}

const char *element_op_name(dicomm_redop_t op)
{
	static const char *const names[] = {
		[DICOMM_SUM] = "sum", [DICOMM_PROD] = "prod",
		[DICOMM_MAX] = "max", [DICOMM_MIN] = "min",
		[DICOMM_AVG] = "avg", [DICOMM_BAND] = "band",
		[DICOMM_BOR] = "bor", [DICOMM_BXOR] = "bxor"};

	return op == ELEMENT_PREMULSUM ? "premulsum" : names[op];
}

bool element_op_fits(dicomm_redop_t op, dicomm_datatype_t type)
{
	if (type >= DICOMM_BYTES2)
		return false;
	if (type == DICOMM_BOOL)
		return op == DICOMM_MAX || op == DICOMM_MIN ||
		       (op >= DICOMM_BAND && op != ELEMENT_PREMULSUM);
	if (part_of(type) != type)
		return op == DICOMM_SUM || op == DICOMM_AVG;
	return op == ELEMENT_PREMULSUM || op < DICOMM_BAND ||
	       !formats[type].is_float;
}

int64_t element_input(dicomm_datatype_t type, dicomm_redop_t op, unsigned seed,
		      int rank, size_t i)
{
	static const int factors[] = {1, -1, 2};
	const struct format *f = &formats[part_of(type)];
	uint64_t h = (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15) +
		     ((uint64_t)seed << 32 | (uint32_t)(rank + 1)) *
			     UINT64_C(0xc2b2ae3d27d4eb4f);

	h = (h ^ (h >> 31)) * UINT64_C(0xd6e8feb86659fd93);
	h ^= h >> 32;
	if (type == DICOMM_BOOL)
		return h & 1;
	if (!f->is_float)
		return (int64_t)h;
	if (op == DICOMM_PROD)
		return factors[h % 3];
	return (int64_t)(h % (uint64_t)(2 * f->range + 1)) - f->range;
}

int64_t element_scalar(int rank)
{
	return rank ? 1 : 2;
}

/* Exact, or nearest even; in the range of normal numbers. */
static uint64_t encode(const struct format *f, double value)
{
	uint64_t sign = signbit(value) ? 1 : 0, bits;
	int exponent;
	double m;

	if (value == 0)
		return 0;
	m = frexp(fabs(value), &exponent); /* 0.5 <= m < 1 */
	bits = (uint64_t)nearbyint(ldexp(m, f->mantissa_bits + 1));
	bits -= UINT64_C(1) << f->mantissa_bits;
	bits += (uint64_t)(exponent - 1 + f->bias) << f->mantissa_bits;
	return bits | sign << (f->exponent_bits + f->mantissa_bits);
}

void element_put_double(dicomm_datatype_t type, void *at, double value)
{
	uint64_t bits;
	float single;

	/* The common one, quickly. */
	if (type == DICOMM_FLOAT32) {
		single = (float)value;
		memcpy(at, &single, sizeof(single));
		return;
	}
	bits = encode(&formats[type], value);
	memcpy(at, &bits, formats[type].bytes); /* little end first */
}

void element_put(dicomm_datatype_t type, void *at, int64_t value)
{
	size_t part = formats[part_of(type)].bytes;

	if (part_of(type) != type) {
		element_put(part_of(type), at, value);
		element_put(part_of(type), (uint8_t *)at + part,
			    IMAGINARY * value);
	} else if (formats[type].is_float) {
		element_put_double(type, at, (double)value);
	} else if (part <= sizeof(value)) {
		memcpy(at, &value, part);
	} else {
		uint64_t wide[2] = {(uint64_t)value, ~(uint64_t)value};

		memcpy(at, wide, sizeof(wide));
	}
}

double element_get(dicomm_datatype_t type, const void *at)
{
	const struct format *f = &formats[type];
	uint64_t bits = 0, mantissa, exponent;
	double m;

	memcpy(&bits, at, f->bytes);
	if (!f->is_float)
		return (double)(int64_t)bits;
	mantissa = bits & ((UINT64_C(1) << f->mantissa_bits) - 1);
	exponent = bits >> f->mantissa_bits &
		   ((UINT64_C(1) << f->exponent_bits) - 1);
	m = (double)mantissa;
	if (exponent)
		m += ldexp(1, f->mantissa_bits);
	else
		exponent = 1;
	m = ldexp(m, (int)exponent - f->bias - f->mantissa_bits);
	return bits >> (f->exponent_bits + f->mantissa_bits) & 1 ? -m : m;
}

/* The low bits of v as a number of the type. */
static int64_t narrow(const struct format *f, uint64_t v)
{
	unsigned unused = (unsigned)(64 - 8 * f->bytes);

	if (f->is_signed)
		return (int64_t)(v << unused) >> unused;
	return (int64_t)(v << unused >> unused);
}

static bool below(const struct format *f, int64_t a, int64_t b)
{
	return f->is_signed ? a < b : (uint64_t)a < (uint64_t)b;
}

/* Of small integers in floats too: they fit int64. */
static int64_t combine(const struct format *f, dicomm_redop_t op, int64_t a,
		       int64_t b)
{
	switch (op) {
	case DICOMM_PROD:
		return (int64_t)((uint64_t)a * (uint64_t)b);
	case DICOMM_MAX:
		return below(f, a, b) ? b : a;
	case DICOMM_MIN:
		return below(f, b, a) ? b : a;
	case DICOMM_BAND:
		return a & b;
	case DICOMM_BOR:
		return a | b;
	case DICOMM_BXOR:
		return a ^ b;
	default:
		return (int64_t)((uint64_t)a + (uint64_t)b);
	}
}

static bool power_of_two(int n)
{
	return !(n & (n - 1));
}

/* Each input is scaled and each sum rounded to the type: at most one half of a
 * last place at a time, of at most the sum of the absolute values. */
static void put_average(dicomm_datatype_t type, int ranks, double sum,
			int range, void *at, const void *got)
{
	const struct format *f = &formats[type];
	double want = sum / ranks, limit;

	limit = ldexp(range, -f->mantissa_bits) * (ranks + 2) / 2;
	if (power_of_two(ranks) ||
	    !(fabs(element_get(type, got) - want) <= limit))
		element_put_double(type, at, want);
	else
		memcpy(at, got, f->bytes);
}

void element_reduce(dicomm_datatype_t type, dicomm_redop_t op, unsigned seed,
		    int ranks, size_t i, void *at, const void *got)
{
	dicomm_datatype_t part = part_of(type);
	const struct format *f = &formats[part];
	int64_t all = 0;

	for (int r = 0; r < ranks; r++) {
		int64_t v = element_input(type, op, seed, r, i);

		if (op == ELEMENT_PREMULSUM)
			v = (int64_t)((uint64_t)v *
				      (uint64_t)element_scalar(r));
		if (!f->is_float)
			v = narrow(f, (uint64_t)v);
		all = r ? combine(f, op, all, v) : v;
	}
	if (!f->is_float)
		all = narrow(f, (uint64_t)all);
	if (op == DICOMM_AVG && f->is_float) {
		put_average(part, ranks, (double)all, f->range, at, got);
		if (part != type)
			put_average(part, ranks, (double)(IMAGINARY * all),
				    -IMAGINARY * f->range,
				    (uint8_t *)at + f->bytes,
				    (const uint8_t *)got + f->bytes);
		return;
	}
	if (op == DICOMM_AVG)
		all = f->is_signed ? all / ranks
				   : (int64_t)((uint64_t)all / (uint64_t)ranks);
	element_put(type, at, all);
}
