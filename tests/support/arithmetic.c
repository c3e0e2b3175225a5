/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The arithmetic of each type by its definition: numbers are decoded by their
 * formula, computed in wider arithmetic and rounded by searching the nearest
 * of all values of the type.
 */
#include <check.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "src/base/type.h"
#include "tests/support/arithmetic.h"

/* float64 sums and products, with two bits to spare beyond twice 53 */
#if __LDBL_MANT_DIG__ >= 113
typedef long double wide;
#else
typedef __float128 wide;
#endif

/* The narrow formats by their books */

struct format {
	dicomm_datatype_t type;
	int bits, man, bias;
	bool has_inf; /* the last exponent: infinity and NaNs */
	bool fnuz;    /* NaN is what would be -0 */
	unsigned nan; /* the one that we write */
	int finite;   /* how many codes without sign are numbers */
};

static struct format formats[] = {
	{DICOMM_FLOAT16, 16, 10, 15, true, false, 0x7e00, 0x7c00},
	{DICOMM_BFLOAT16, 16, 7, 127, true, false, 0x7fc0, 0x7f80},
	{DICOMM_FLOAT8E4M3, 8, 3, 7, false, false, 0x7f, 0x7f},
	{DICOMM_FLOAT8E5M2, 8, 2, 15, true, false, 0x7e, 0x7c},
	{DICOMM_FLOAT8E4M3FNUZ, 8, 3, 8, false, true, 0x80, 0x80},
	{DICOMM_FLOAT8E5M2FNUZ, 8, 2, 16, false, true, 0x80, 0x80},
};
#define FORMATS (sizeof(formats) / sizeof(*formats))

static const struct format *format(dicomm_datatype_t type)
{
	for (size_t i = 0; i < FORMATS; i++)
		if (formats[i].type == type)
			return &formats[i];
	ck_abort_msg("%s is no narrow float", type_name(type));
}

static double formula(const struct format *f, int code)
{
	int exp = code >> f->man, man = code & ((1 << f->man) - 1);

	if (exp == 0)
		return ldexp(man, 1 - f->bias - f->man);
	return ldexp(man + (1 << f->man), exp - f->bias - f->man);
}

static double table[FORMATS][0x7f80 + 1];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* By code without sign, and one more: what would come next, were there no
 * limit */
static void fill_table(void)
{
	for (size_t i = 0; i < FORMATS; i++)
		for (int code = 0; code <= formats[i].finite; code++)
			table[i][code] = formula(&formats[i], code);
}

/* Streams of the mocks are threads. */
static const double *values(const struct format *f)
{
	pthread_once(&once, fill_table);
	return table[f - formats];
}

static double from_narrow(const struct format *f, unsigned x)
{
	unsigned top = 1u << (f->bits - 1);
	unsigned code = x & (top - 1);
	double sign = x & top ? -1 : 1;

	if (f->fnuz && x == top)
		return NAN;
	if (code < (unsigned)f->finite)
		return sign * values(f)[code];
	return f->has_inf && code == (unsigned)f->finite ? sign * INFINITY
							 : NAN;
}

static unsigned to_narrow(const struct format *f, double x)
{
	unsigned top = 1u << (f->bits - 1);
	unsigned sign = signbit(x) ? top : 0;
	double mag = fabs(x);
	const double *value = values(f);
	int low = 0, high = f->finite;

	if (isnan(x))
		return f->nan;
	/* value[low] <= mag < value[high], or mag beyond all */
	while (high - low > 1) {
		int middle = (low + high) / 2;

		if (value[middle] <= mag)
			low = middle;
		else
			high = middle;
	}
	if (mag >= value[high])
		low = high;
	else if (mag - value[low] > value[high] - mag)
		low = high;
	else if (mag - value[low] == value[high] - mag && low % 2)
		low = high;
	if (low == f->finite)
		return f->has_inf ? (unsigned)low | sign : f->nan;
	return f->fnuz && low == 0 ? 0 : (unsigned)low | sign;
}

int arithmetic_man_bits(dicomm_datatype_t type)
{
	if (type == DICOMM_FLOAT64)
		return 52;
	return type == DICOMM_FLOAT32 ? 23 : format(type)->man;
}

/* One element as a number that holds it; back from a float or its bits */

uint64_t arithmetic_bits(dicomm_datatype_t type, const void *p)
{
	uint64_t u = 0;

	memcpy(&u, p, type_bytes(type)); /* little endian only */
	return u;
}

double arithmetic_load(dicomm_datatype_t type, const void *p)
{
	double d;
	float s;

	if (type == DICOMM_FLOAT64) {
		memcpy(&d, p, sizeof(d));
		return d;
	}
	if (type == DICOMM_FLOAT32) {
		memcpy(&s, p, sizeof(s));
		return (double)s;
	}
	return from_narrow(format(type), (unsigned)arithmetic_bits(type, p));
}

void arithmetic_store(dicomm_datatype_t type, void *p, double x)
{
	uint64_t u = 0x7ff8000000000000u;
	unsigned narrow;
	float s = (float)x;

	if (type == DICOMM_FLOAT64) {
		memcpy(p, isnan(x) ? (void *)&u : (void *)&x, sizeof(x));
	} else if (type == DICOMM_FLOAT32) {
		u = 0x7fc00000;
		memcpy(p, isnan(x) ? (void *)&u : (void *)&s, sizeof(s));
	} else {
		narrow = to_narrow(format(type), x);
		memcpy(p, &narrow, type_bytes(type));
	}
}

static double greater(double x, double y)
{
	if (isnan(x) || isnan(y))
		return NAN;
	if (x == y)
		return signbit(x) ? y : x;
	return x > y ? x : y;
}

/* x op y as the type computes: narrow floats in float32 */
double arithmetic_float(dicomm_datatype_t type, dicomm_redop_t op, double x,
			double y)
{
	wide exact;

	if (op == DICOMM_MAX)
		return greater(x, y);
	if (op == DICOMM_MIN)
		return -greater(-x, -y);
	exact = op == DICOMM_PROD ? (wide)x * (wide)y : (wide)x + (wide)y;
	return type == DICOMM_FLOAT64 ? (double)exact : (double)(float)exact;
}

double arithmetic_saturate(dicomm_datatype_t type, double x)
{
	double most = 0x1.fffffep127;

	if (type != DICOMM_FLOAT32)
		most = values(format(type))[format(type)->finite - 1];
	return isfinite(x) && fabs(x) > most ? copysign(most, x) : x;
}

static double average(dicomm_datatype_t type, double x, double y)
{
	double sum = arithmetic_float(type, DICOMM_SUM, x, y);

	if (!isfinite(x) || !isfinite(y))
		return sum;
	if (type == DICOMM_FLOAT64)
		return isfinite(sum) ? sum
				     : copysign(0x1.fffffffffffffp1023, x);
	if (!isfinite(sum)) /* of a float32 */
		sum = copysign(0x1.fffffep127, x);
	return arithmetic_saturate(type, sum);
}

static uint64_t bits_result(dicomm_redop_t op, uint64_t x, uint64_t y)
{
	unsigned __int128 a = x, b = y;

	switch (op) {
	case DICOMM_PROD:
		return (uint64_t)(a * b);
	case DICOMM_BAND:
		return x & y;
	case DICOMM_BOR:
		return x | y;
	case DICOMM_BXOR:
		return x ^ y;
	default:
		return (uint64_t)(a + b);
	}
}

static bool is_signed(dicomm_datatype_t type)
{
	return type == DICOMM_INT8 || type == DICOMM_INT16 ||
	       type == DICOMM_INT32 || type == DICOMM_INT64;
}

__int128 arithmetic_integer(dicomm_datatype_t type, const void *p)
{
	uint64_t u = arithmetic_bits(type, p);
	int bits = 8 * (int)type_bytes(type);
	__int128 x = u;

	if (is_signed(type) && u >> (bits - 1))
		x -= (__int128)1 << bits;
	return x;
}

void arithmetic_expect(dicomm_datatype_t type, dicomm_redop_t op, void *r,
		       const void *a, const void *b)
{
	size_t elem = type_bytes(type);

	if (type_is_float(type) && op == DICOMM_AVG) {
		arithmetic_store(type, r,
				 average(type, arithmetic_load(type, a),
					 arithmetic_load(type, b)));
	} else if (type_is_float(type)) {
		arithmetic_store(type, r,
				 arithmetic_float(type, op,
						  arithmetic_load(type, a),
						  arithmetic_load(type, b)));
	} else if (op == DICOMM_MAX || op == DICOMM_MIN) {
		bool first = arithmetic_integer(type, a) >
			     arithmetic_integer(type, b);

		memmove(r, first == (op == DICOMM_MAX) ? a : b, elem);
	} else {
		uint64_t u = bits_result(op, arithmetic_bits(type, a),
					 arithmetic_bits(type, b));

		memcpy(r, &u, elem);
	}
}
