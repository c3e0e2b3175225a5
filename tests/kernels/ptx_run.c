/* SPDX-License-Identifier: BSD-3-Clause */
/* An interpreter of PTX: the part that runs a kernel. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kernels/ptx.h"
#include "tests/kernels/ptx_code.h"
#include "tests/support/arithmetic.h"

/* A thread that does more runs for ever. */
#define STEP_LIMIT (1l << 28)

struct thread {
	const struct ptx_kernel *kernel;
	const uint64_t *args;
	uint64_t *w; /* words */
	ptx_translate_fn translate;
	char *why;
	size_t why_len;
};

static uint64_t low(uint64_t x, int bits)
{
	return bits >= 64 ? x : x & ((1ull << bits) - 1);
}

static int64_t extend(uint64_t x, int bits)
{
	return (int64_t)(x << (64 - bits)) >> (64 - bits);
}

static float f32(uint64_t x)
{
	uint32_t u = (uint32_t)x;
	float f;

	memcpy(&f, &u, 4);
	return f;
}

static uint64_t from_f32(float f)
{
	uint32_t u;

	memcpy(&u, &f, 4);
	return u;
}

static double f64(uint64_t x)
{
	double f;

	memcpy(&f, &x, 8);
	return f;
}

static uint64_t from_f64(double f)
{
	uint64_t u;

	memcpy(&u, &f, 8);
	return u;
}

/* -1, 0, 1; 2 if one is NaN */
static int compare(struct ptx_type t, uint64_t x, uint64_t y)
{
	if (t.kind == PTX_FLOAT) {
		double a = t.bits == 32 ? (double)f32(x) : f64(x);
		double b = t.bits == 32 ? (double)f32(y) : f64(y);

		return a < b ? -1 : a > b ? 1 : a == b ? 0 : 2;
	}
	if (t.kind == PTX_SIGNED) {
		int64_t a = extend(x, t.bits), b = extend(y, t.bits);

		return a < b ? -1 : a > b;
	}
	x = low(x, t.bits);
	y = low(y, t.bits);
	return x < y ? -1 : x > y;
}

static uint64_t shift_right(struct ptx_type t, uint64_t x, uint64_t by)
{
	uint64_t n = low(by, 32);

	if (t.kind == PTX_SIGNED)
		return (uint64_t)(extend(x, t.bits) >> (n >= (uint64_t)t.bits
								? t.bits - 1
								: (int)n));
	return n >= (uint64_t)t.bits ? 0 : low(x, t.bits) >> n;
}

/* A field of len bits at pos; what lies beyond the word is its sign. */
static uint64_t bit_field(struct ptx_type t, uint64_t x, uint64_t pos,
			  uint64_t len)
{
	uint64_t r = 0, sign;

	pos &= 255;
	len &= 255;
	if (t.kind == PTX_UNSIGNED || !len)
		sign = 0;
	else
		sign = x >> (pos + len - 1 < (uint64_t)t.bits
				     ? pos + len - 1
				     : (uint64_t)t.bits - 1) &
		       1;
	for (int i = 0; i < t.bits; i++) {
		bool inside = (uint64_t)i < len &&
			      pos + (uint64_t)i < (uint64_t)t.bits;

		r |= (inside ? x >> (pos + (uint64_t)i) & 1 : sign) << i;
	}
	return r;
}

/* The low len bits of x, put into y at pos */
static uint64_t bits_into(int bits, uint64_t x, uint64_t y, uint64_t pos,
			  uint64_t len)
{
	uint64_t field = low(~0ull, bits);

	pos &= 255;
	len &= 255;
	if (pos >= (uint64_t)bits)
		return y;
	if (len < (uint64_t)bits)
		field = low(field, (int)len);
	field <<= pos;
	return (y & ~field) | (x << pos & field);
}

/* Four of the bytes of y and x, which selector names; or their signs */
static uint64_t permute(uint64_t x, uint64_t y, uint64_t selector)
{
	uint64_t pool = low(x, 32) | y << 32, r = 0;

	for (int i = 0; i < 4; i++) {
		uint64_t which = selector >> 4 * i & 15;
		uint64_t byte = pool >> 8 * (which & 7) & 255;

		if (which & 8)
			byte = byte & 128 ? 255 : 0;
		r |= byte << 8 * i;
	}
	return r;
}

/* To NaN the hardware gives one pattern, 0x7fff. */
static uint64_t to_f16(float f)
{
	uint16_t x = 0;

	if (f != f)
		return 0x7fff;
	arithmetic_store(DICOMM_FLOAT16, &x, (double)f);
	return x;
}

static uint64_t convert(const struct ptx_insn *i, uint64_t x)
{
	if (i->from.kind == PTX_FLOAT) {
		uint16_t half = (uint16_t)x;

		return i->type.bits == 16 ? to_f16(f32(x))
					  : from_f32((float)arithmetic_load(
						    DICOMM_FLOAT16, &half));
	}
	x = i->from.kind == PTX_SIGNED ? (uint64_t)extend(x, i->from.bits)
				       : low(x, i->from.bits);
	if (i->type.kind != PTX_FLOAT)
		return low(x, i->type.bits);
	return from_f32(i->from.kind == PTX_SIGNED ? (float)(int64_t)x
						   : (float)x);
}

static uint64_t divide(struct ptx_type t, uint64_t x, uint64_t y)
{
	if (t.kind == PTX_SIGNED)
		return (uint64_t)(extend(x, t.bits) / extend(y, t.bits));
	return low(x, t.bits) / low(y, t.bits);
}

static uint64_t multiply_wide(struct ptx_type t, uint64_t x, uint64_t y)
{
	if (t.kind == PTX_SIGNED)
		return (uint64_t)(extend(x, t.bits) * extend(y, t.bits));
	return low(x, t.bits) * low(y, t.bits);
}

/* The value of an instruction with one result; operands that it has not are
 * 0. */
static uint64_t value(const struct ptx_insn *i, uint64_t x, uint64_t y,
		      uint64_t z, uint64_t last)
{
	int bits = i->type.bits;
	bool single = bits == 32;
	int order;

	switch (i->op) {
	case PTX_MOV:
		return low(x, bits);
	case PTX_PACK:
		return low(x, bits / 2) | low(y, bits / 2) << bits / 2;
	case PTX_ADD:
		return low(x + y, bits);
	case PTX_SUB:
		return low(x - y, bits);
	case PTX_MUL:
		return low(x * y, bits);
	case PTX_MAD:
		return low(x * y + z, bits);
	case PTX_MUL_WIDE:
		return low(multiply_wide(i->type, x, y), 2 * bits);
	case PTX_DIV:
		return low(divide(i->type, x, y), bits);
	case PTX_FADD:
		return single ? from_f32(f32(x) + f32(y))
			      : from_f64(f64(x) + f64(y));
	case PTX_FMUL:
		return single ? from_f32(f32(x) * f32(y))
			      : from_f64(f64(x) * f64(y));
	case PTX_AND:
		return low(x & y, bits);
	case PTX_OR:
		return low(x | y, bits);
	case PTX_XOR:
		return low(x ^ y, bits);
	case PTX_NOT:
		return low(~x, bits);
	case PTX_NEG:
		return low(-x, bits);
	case PTX_SHL:
		return low(y, 32) >= (uint64_t)bits
			       ? 0
			       : low(x << low(y, 32), bits);
	case PTX_SHR:
		return low(shift_right(i->type, x, y), bits);
	case PTX_BFE:
		return bit_field(i->type, x, y, z);
	case PTX_BFI:
		return low(bits_into(bits, x, y, z, last), bits);
	case PTX_PRMT:
		return permute(x, y, z);
	case PTX_SELP:
		return low(z ? x : y, bits);
	case PTX_CVT:
		return convert(i, x);
	default:
		break;
	}
	order = compare(i->type, x, y);
	switch (i->op) {
	case PTX_MIN:
		return low(order < 0 ? x : y, bits);
	case PTX_MAX:
		return low(order < 0 ? y : x, bits);
	case PTX_EQ:
		return order == 0;
	case PTX_NE:
		return order != 0;
	case PTX_LT:
		return order == -1;
	case PTX_LE:
		return order == -1 || order == 0;
	case PTX_GT:
		return order == 1;
	case PTX_GE:
		return order == 1 || order == 0;
	default:
		abort();
	}
}

static void *address(const struct thread *t, const struct ptx_insn *i,
		     int count)
{
	uint64_t at = t->w[i->in[0]] + (uint64_t)i->offset;
	size_t bytes = (size_t)(i->type.bits / 8 * count);
	void *p = NULL;

	if (at && at % bytes == 0)
		p = t->translate ? t->translate(at, bytes)
				 : (void *)(uintptr_t)at;
	if (!p)
		snprintf(t->why, t->why_len,
			 "%s: access to %zu bytes at %#" PRIx64,
			 t->kernel->name, bytes, at);
	return p;
}

static bool load(const struct thread *t, const struct ptx_insn *i)
{
	size_t bytes = (size_t)i->type.bits / 8;
	unsigned char *p = address(t, i, i->nout);

	for (int k = 0; p && k < i->nout; k++) {
		uint64_t x = 0;

		memcpy(&x, p + (size_t)k * bytes, bytes);
		if (i->type.kind == PTX_SIGNED)
			x = (uint64_t)extend(x, i->type.bits);
		t->w[i->out[k]] = x;
	}
	return p;
}

static bool store(const struct thread *t, const struct ptx_insn *i)
{
	size_t bytes = (size_t)i->type.bits / 8;
	unsigned char *p = address(t, i, i->nin - 1);

	for (int k = 0; p && k < i->nin - 1; k++)
		memcpy(p + (size_t)k * bytes, &t->w[i->in[k + 1]], bytes);
	return p;
}

static void unpack(const struct thread *t, const struct ptx_insn *i)
{
	uint64_t x = t->w[i->in[0]];
	int half = i->type.bits / 2;

	t->w[i->out[0]] = low(x, half);
	t->w[i->out[1]] = low(x >> half, half);
}

static bool run_thread(const struct thread *t)
{
	const struct ptx_kernel *k = t->kernel;
	int at = 0;

	for (long steps = 0; steps < STEP_LIMIT; steps++) {
		const struct ptx_insn *i = &k->insns[at++];

		if (i->guard >= 0 && !t->w[i->guard] != i->guard_negated)
			continue;
		switch (i->op) {
		case PTX_RET:
			return true;
		case PTX_BRA:
			at = i->target;
			break;
		case PTX_LD_PARAM:
			t->w[i->out[0]] = low(t->args[i->in[0]], i->type.bits);
			break;
		case PTX_LD:
			if (!load(t, i))
				return false;
			break;
		case PTX_ST:
			if (!store(t, i))
				return false;
			break;
		case PTX_UNPACK:
			unpack(t, i);
			break;
		case PTX_DIV:
			if (!low(t->w[i->in[1]], i->type.bits)) {
				snprintf(t->why, t->why_len,
					 "%s: division by zero", k->name);
				return false;
			}
			/* fall through */
		default:
			t->w[i->out[0]] =
				value(i, t->w[i->in[0]],
				      i->nin > 1 ? t->w[i->in[1]] : 0,
				      i->nin > 2 ? t->w[i->in[2]] : 0,
				      i->nin > 3 ? t->w[i->in[3]] : 0);
		}
	}
	snprintf(t->why, t->why_len, "%s: does not end", k->name);
	return false;
}

bool ptx_run(const struct ptx *p, const char *kernel, const uint64_t *args,
	     int nargs, uint32_t blocks, uint32_t block,
	     ptx_translate_fn translate, char *why, size_t len)
{
	struct thread t = {.args = args,
			   .translate = translate,
			   .why = why,
			   .why_len = len};
	const struct ptx_kernel *k;
	bool good = true;

	for (int i = 0; i < p->nkernels && !t.kernel; i++)
		if (!strcmp(p->kernels[i].name, kernel))
			t.kernel = &p->kernels[i];
	k = t.kernel;
	if (!k || nargs != k->nparams || (k->block && k->block != block)) {
		snprintf(why, len,
			 "%s: no kernel of %d parameters and %u "
			 "threads in a block",
			 kernel, nargs, block);
		return false;
	}
	t.w = malloc((size_t)k->nwords * sizeof(*t.w));
	if (!t.w)
		abort();
	for (uint32_t b = 0; b < blocks && good; b++)
		for (uint32_t i = 0; i < block && good; i++) {
			memcpy(t.w, k->words, (size_t)k->nwords * sizeof(*t.w));
			t.w[k->tid] = i;
			t.w[k->ctaid] = b;
			t.w[k->ntid] = block;
			t.w[k->nctaid] = blocks;
			good = run_thread(&t);
		}
	free(t.w);
	return good;
}
