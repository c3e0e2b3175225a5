/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reductions on any device, from one source. Its compilers: clang for PTX and
 * AMD GPUs, the OpenCL runtime, the run-time compilers of CUDA and HIP, which
 * take it as C++, and a C compiler (the oracle of the tests). All results have
 * the same bits as those of src/accel/reduce/kernels.c.
 * src/accel/reduce/reduce.h defines the operators.
 *
 * So there are no library functions (no device library is linked), no
 * contraction, and one bit pattern for NaN. Everything but sums and products is
 * integer arithmetic: a device that treats denormals as zero in comparisons and
 * conversions gives the same results. Only float16 is converted by the
 * hardware, where that is known to be exact; it would not keep up with the
 * memory otherwise.
 *
 * A kernel gets its whole geometry as arguments: a thread is one of `threads`,
 * in blocks of BLOCK. Pointers may have any alignment. A thread handles one
 * item at a time: 16 bytes that are aligned in the destination, or one of the
 * elements before the first and behind the last of these. If an operand is
 * aligned differently, the kernel reads aligned vectors and shifts them into
 * place. It never reads a byte outside an operand.
 *
 * REDUCE_ONLY=REDUCE_F16 compiles the kernels of one type: modules that are
 * compiled when they are loaded should be small. With REDUCE_ONE only one of
 * these is a kernel, "#define ONE_fold_sum_f16 , KERNEL" says which: the others
 * are functions that nothing calls, which compilers leave out.
 */
#define REDUCE_I8 1
#define REDUCE_I16 2
#define REDUCE_I32 3
#define REDUCE_I64 4
#define REDUCE_F16 5
#define REDUCE_BF16 6
#define REDUCE_E4M3 7
#define REDUCE_E5M2 8
#define REDUCE_E4M3FNUZ 9
#define REDUCE_E5M2FNUZ 10
#define REDUCE_F32 11
#define REDUCE_F64 12

#ifndef REDUCE_ONLY
#define WANTED(type) 1
#else
#define WANTED(type) (REDUCE_ONLY == (type))
#endif

/* ---- compilers ---- */

#if defined(__OPENCL_VERSION__) || defined(__OPENCL_C_VERSION__)

#pragma OPENCL FP_CONTRACT OFF
#define GLOBAL __global
#define INLINE static inline __attribute__((always_inline, unused))
#define UNROLL _Pragma("unroll")
#define ROLL _Pragma("nounroll")
typedef uchar u8;
typedef char i8;
typedef ushort u16;
typedef short i16;
typedef uint u32;
typedef int i32;
typedef ulong u64;
typedef long i64;
typedef uint4 vec;
#define VEC(a, b, c, d) ((uint4)(a, b, c, d))
#define W0(v) ((v).s0)
#define W1(v) ((v).s1)
#define W2(v) ((v).s2)
#define W3(v) ((v).s3)

#ifdef REDUCE_BLOCKED
#define BLOCK 1
#else
#define BLOCK 256
#endif
#define KERNEL __kernel __attribute__((reqd_work_group_size(BLOCK, 1, 1))) void

#if !defined(__NVPTX__) && !defined(__AMDGCN__)
#define THREAD ((u64)get_global_id(0))
#endif

#if defined(cl_khr_fp64) || defined(__opencl_c_fp64)
#define HAVE_F64 1
#if __OPENCL_C_VERSION__ < 120
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#endif

#if defined(__AMDGCN__) && defined(cl_khr_fp16)
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define HAVE_F16 1
typedef half f16;
#endif

#elif defined(__CUDACC__) || defined(__CUDA__) || defined(__HIP__)

/* No headers are included, since there may be none at run time. Compiler
 * options turn contraction off. */
#define GLOBAL
#define INLINE \
	static inline \
		__attribute__((device)) __attribute__((always_inline, unused))
#define UNROLL _Pragma("unroll")
#define ROLL _Pragma("unroll 1")
typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;
typedef decltype(sizeof(0)) size_t;
struct __attribute__((aligned(16))) vec {
	u32 w0, w1, w2, w3;
};
INLINE vec vec_of(u32 a, u32 b, u32 c, u32 d)
{
	vec v = {a, b, c, d};

	return v;
}
#define VEC(a, b, c, d) vec_of(a, b, c, d)
#define W0(v) ((v).w0)
#define W1(v) ((v).w1)
#define W2(v) ((v).w2)
#define W3(v) ((v).w3)
#define HAVE_F64 1

#define BLOCK 256
#define KERNEL \
	extern "C" __attribute__((global)) \
		__attribute__((launch_bounds(BLOCK))) void

#if defined(__AMDGCN__)
#define HAVE_F16 1
typedef _Float16 f16;
#endif
#ifndef __clang__
#define __asm__ asm
#endif

#else /* a C compiler; the includer defines THREAD, KERNEL and INLINE */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#define GLOBAL
#define UNROLL
#define ROLL
typedef uint8_t u8;
typedef int8_t i8;
typedef uint16_t u16;
typedef int16_t i16;
typedef uint32_t u32;
typedef int32_t i32;
typedef uint64_t u64;
typedef int64_t i64;
typedef struct {
	_Alignas(16) u32 w[4];
} vec;
#define VEC(a, b, c, d) ((vec){{a, b, c, d}})
#define W0(v) ((v).w[0])
#define W1(v) ((v).w[1])
#define W2(v) ((v).w[2])
#define W3(v) ((v).w[3])
#define HAVE_F64 1

#endif

#if defined(__NVPTX__)
#define THREAD \
	((u64)(u32)__nvvm_read_ptx_sreg_ctaid_x() * BLOCK + \
	 (u32)__nvvm_read_ptx_sreg_tid_x())
#elif defined(__AMDGCN__)
#define THREAD \
	((u64)__builtin_amdgcn_workgroup_id_x() * BLOCK + \
	 __builtin_amdgcn_workitem_id_x())
#elif defined(__CUDACC__)
#define THREAD ((u64)blockIdx.x * BLOCK + threadIdx.x)
#endif

/* ---- elements as bits ---- */

INLINE float float32(u32 bits)
{
	union {
		u32 bits;
		float f;
	} u;

	u.bits = bits;
	return u.f;
}

INLINE u32 bits32(float f)
{
	union {
		u32 bits;
		float f;
	} u;

	u.f = f;
	return u.bits;
}

#define NAN32 0x7fc00000u
#define INF32 0x7f800000u

INLINE bool is_nan32(u32 x)
{
	return (x & 0x7fffffffu) > INF32;
}

INLINE u32 quiet32(u32 x)
{
	return is_nan32(x) ? NAN32 : x;
}

/*
 * The format of a narrow float: its bits, the bits of the significand, the bias
 * of the exponent, and which codes are special. The compiler treats them as
 * constants.
 */
#define IEEE 0     /* infinities, NaNs above them */
#define ONLY_NAN 1 /* all ones but the sign is NaN: OCP e4m3 */
#define FNUZ 2     /* NaN instead of -0, no infinity */

#define F16 16, 10, 15, IEEE
#define BF16 16, 7, 127, IEEE
#define E4M3 8, 3, 7, ONLY_NAN
#define E5M2 8, 2, 15, IEEE
#define E4M3FNUZ 8, 3, 8, FNUZ
#define E5M2FNUZ 8, 2, 16, FNUZ

INLINE u32 narrow_inf(u32 width, u32 man)
{
	return (1u << (width - 1)) - (1u << man);
}

INLINE u32 narrow_nan(u32 width, u32 man, u32 bias, u32 specials)
{
	if (specials == IEEE)
		return narrow_inf(width, man) + (1u << (man - 1));
	return specials == ONLY_NAN ? (1u << (width - 1)) - 1
				    : 1u << (width - 1);
}

INLINE bool narrow_is_nan(u32 x, u32 width, u32 man, u32 bias, u32 specials)
{
	u32 code = x & ((1u << (width - 1)) - 1);

	if (specials == IEEE)
		return code > narrow_inf(width, man);
	if (specials == ONLY_NAN)
		return code == (1u << (width - 1)) - 1;
	return x == 1u << (width - 1);
}

INLINE float narrow_decode(u32 x, u32 width, u32 man, u32 bias, u32 specials)
{
	u32 sign = x >> (width - 1) << 31;
	u32 code = x & ((1u << (width - 1)) - 1);
	u32 mag = code << (23 - man);
	u32 normal = mag + ((127 - bias) << 23);
	/* The code is an integer that float32 holds exactly; scale it by the
	 * exponent of denormals. */
	u32 denormal = bits32((float)code) - ((bias + man - 1) << 23);
	u32 r = code < 1u << man ? (code ? denormal : 0) : normal;

	if (specials == IEEE)
		r = code >= narrow_inf(width, man) ? mag | INF32 : r;
	else if (narrow_is_nan(x, width, man, bias, specials))
		r = NAN32;
	return float32(r | sign);
}

/* Round to nearest even. What exceeds the largest value by half a step or
 * more becomes infinity, or NaN in a type without infinity. */
INLINE u32 narrow_encode(float f, u32 width, u32 man, u32 bias, u32 specials)
{
	u32 shift = 23 - man;
	u32 top = 1u << (width - 1);
	u32 nan = narrow_nan(width, man, bias, specials);
	u32 u = bits32(f);
	u32 sign = u >> 31 << (width - 1);
	u32 mag = u & 0x7fffffffu;
	u32 half_step = (1u << (shift - 1)) - 1 - ((127 - bias) << 23);
	u32 normal = (mag + half_step + (mag >> shift & 1)) >> shift;
	/* Below the least normal number: shift the significand to where its
	 * last bit has the weight of a denormal's last bit. */
	u32 away = 151 - bias - man - (mag >> 23);
	/* limits the shift; unused for normal numbers */
	u32 s = away - 1 < 25 ? away : 25;
	u32 m = (mag & 0x7fffffu) | 0x800000u;
	u32 denormal = (m + (1u << (s - 1)) - 1 + (m >> s & 1)) >> s;
	u32 r = mag < (128 - bias) << 23 ? denormal : normal;

	if (specials == IEEE) {
		u32 inf = narrow_inf(width, man);

		r = (r > inf ? inf : r) | sign;
		return is_nan32(u) ? nan : r;
	}
	if (specials == ONLY_NAN)
		return r >= nan ? nan : r | sign;
	return r >= top ? top : r | (r ? sign : 0);
}

#define CODEC(t, T)                         \
	INLINE float t##_decode(u32 x)      \
	{                                   \
		return narrow_decode(x, T); \
	}                                   \
	INLINE u32 t##_encode(float f)      \
	{                                   \
		return narrow_encode(f, T); \
	}

CODEC(e4m3, E4M3)
CODEC(e5m2, E5M2)
CODEC(e4m3fnuz, E4M3FNUZ)
CODEC(e5m2fnuz, E5M2FNUZ)

/* float16 is converted by the hardware of devices that round as IEEE 754
 * says. */
#if defined(__NVPTX__) || defined(__CUDACC__)

INLINE float f16_decode(u32 x)
{
	float f;

	__asm__("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((u16)x));
	return f;
}

INLINE u32 f16_encode(float f)
{
	u16 x;

	__asm__("cvt.rn.f16.f32 %0, %1;" : "=h"(x) : "f"(f));
	return is_nan32(bits32(f)) ? 0x7e00u : x;
}

#elif defined(HAVE_F16)

union f16_bits {
	u16 bits;
	f16 h;
};

INLINE float f16_decode(u32 x)
{
	union f16_bits u;

	u.bits = (u16)x;
	return (float)u.h;
}

INLINE u32 f16_encode(float f)
{
	union f16_bits u;

	u.h = (f16)f;
	return is_nan32(bits32(f)) ? 0x7e00u : u.bits;
}

#else

CODEC(f16, F16)

#endif

/* bfloat16 is the upper half of float32. */
INLINE float bf16_decode(u32 x)
{
	return float32(x << 16);
}

INLINE u32 bf16_encode(float f)
{
	u32 u = bits32(f);

	return (is_nan32(u) ? NAN32 : u + 0x7fffu + (u >> 16 & 1)) >> 16;
}

/* ---- operators of elements, and of 16 bytes of them ---- */

#define WORDS(op)                                                      \
	INLINE vec op##_v(vec x, vec y)                                \
	{                                                              \
		return VEC(op##_w(W0(x), W0(y)), op##_w(W1(x), W1(y)), \
			   op##_w(W2(x), W2(y)), op##_w(W3(x), W3(y))); \
	}

/* The operator gets words whose lower part is one element and whose rest is
 * zero. Only that part of its result counts. */
#define LIFT_8(op)                                                          \
	INLINE u32 op##_w(u32 x, u32 y)                                     \
	{                                                                   \
		u32 r0 = op(x & 0xffu, y & 0xffu) & 0xffu;                  \
		u32 r1 = op(x >> 8 & 0xffu, y >> 8 & 0xffu) & 0xffu;        \
		u32 r2 = op(x >> 16 & 0xffu, y >> 16 & 0xffu) & 0xffu;      \
                                                                            \
		return r0 | r1 << 8 | r2 << 16 | op(x >> 24, y >> 24) << 24; \
	}                                                                   \
	WORDS(op)

#define LIFT_16(op)                                                \
	INLINE u32 op##_w(u32 x, u32 y)                            \
	{                                                          \
		return (op(x & 0xffffu, y & 0xffffu) & 0xffffu) |  \
		       op(x >> 16, y >> 16) << 16;                 \
	}                                                          \
	WORDS(op)

#define LIFT_32(op)                     \
	INLINE u32 op##_w(u32 x, u32 y) \
	{                               \
		return op(x, y);        \
	}                               \
	WORDS(op)

INLINE u64 low64(vec v)
{
	return (u64)W1(v) << 32 | W0(v);
}

INLINE u64 high64(vec v)
{
	return (u64)W3(v) << 32 | W2(v);
}

INLINE vec vec64(u64 low, u64 high)
{
	return VEC((u32)low, (u32)(low >> 32), (u32)high, (u32)(high >> 32));
}

#define LIFT_64(op)                                     \
	INLINE vec op##_v(vec x, vec y)                 \
	{                                               \
		return vec64(op(low64(x), low64(y)),    \
			     op(high64(x), high64(y))); \
	}

/* For a small integer and a divisor that fills the word. */
#define EACH_8(op)                                                        \
	INLINE u32 op##_w(u32 x, u32 y)                                   \
	{                                                                 \
		u32 r0 = op(x & 0xffu, y) & 0xffu;                        \
		u32 r1 = op(x >> 8 & 0xffu, y) & 0xffu;                   \
		u32 r2 = op(x >> 16 & 0xffu, y) & 0xffu;                  \
                                                                          \
		return r0 | r1 << 8 | r2 << 16 | op(x >> 24, y) << 24;    \
	}                                                                 \
	WORDS(op)

#define EACH_16(op)                                                         \
	INLINE u32 op##_w(u32 x, u32 y)                                     \
	{                                                                   \
		return (op(x & 0xffffu, y) & 0xffffu) | op(x >> 16, y) << 16; \
	}                                                                   \
	WORDS(op)

#define EACH_32 LIFT_32
#define EACH_64 LIFT_64

#define OPERATOR(op, word, lift, value) \
	INLINE word op(word x, word y)  \
	{                               \
		return (word)(value);   \
	}                               \
	lift(op)

/* In two's complement, operators that wrap are the same for signed and
 * unsigned types. */
#define INTEGER(bits, word, wide)                                           \
	OPERATOR(sum_u##bits, word, LIFT_##bits, x + y)                     \
	OPERATOR(prod_u##bits, word, LIFT_##bits, x *y)                     \
	OPERATOR(max_i##bits, word, LIFT_##bits, (i##bits)x > (i##bits)y ? x : y) \
	OPERATOR(min_i##bits, word, LIFT_##bits, (i##bits)x < (i##bits)y ? x : y) \
	OPERATOR(max_u##bits, word, LIFT_##bits, x > y ? x : y)             \
	OPERATOR(min_u##bits, word, LIFT_##bits, x < y ? x : y)             \
	OPERATOR(quotient_i##bits, word, EACH_##bits, (wide)(i##bits)x / (wide)y) \
	OPERATOR(quotient_u##bits, word, EACH_##bits, x / y)

INTEGER(8, u32, i32)
INTEGER(16, u32, i32)
INTEGER(32, u32, i32)
INTEGER(64, u64, i64)

/* Bitwise operators work on words, whatever the type. */
OPERATOR(band, u32, LIFT_32, x & y)
OPERATOR(bor, u32, LIFT_32, x | y)
OPERATOR(bxor, u32, LIFT_32, x ^ y)

/* max and min compare bits that are mapped to unsigned numbers in the order of
 * the floats, with -0 below +0. (With signed ones, LLVM 15 makes wrong PTX of
 * the 64-bit variant: bfe.u64 of a sign.) */
INLINE u32 order32(u32 x)
{
	return x >> 31 ? ~x : x | 0x80000000u;
}

/* Without a branch, behind which compilers move the loads of further vectors. */
INLINE u32 unless_nan32(u32 x, u32 y, u32 value)
{
	return is_nan32(x) || is_nan32(y) ? NAN32 : value;
}

OPERATOR(max_f32, u32, LIFT_32,
	 unless_nan32(x, y, order32(x) > order32(y) ? x : y))
OPERATOR(min_f32, u32, LIFT_32,
	 unless_nan32(x, y, order32(x) < order32(y) ? x : y))
OPERATOR(sum_f32, u32, LIFT_32, quiet32(bits32(float32(x) + float32(y))))
OPERATOR(prod_f32, u32, LIFT_32, quiet32(bits32(float32(x) * float32(y))))

/* One step of an average's sum: if finite operands make it infinite, the result
 * is the largest number. */
INLINE u32 average32(u32 x, u32 y)
{
	u32 r = bits32(float32(x) + float32(y));
	bool overflow = (r & 0x7fffffffu) == INF32 &&
			(x & 0x7fffffffu) < INF32 &&
			(y & 0x7fffffffu) < INF32;

	return overflow ? r - 1 : r;
}

OPERATOR(avg_f32, u32, LIFT_32, quiet32(average32(x, y)))

#ifdef HAVE_F64

#define NAN64 0x7ff8000000000000ul
#define INF64 0x7ff0000000000000ul
#define MAG64 0x7ffffffffffffffful

INLINE double float64(u64 bits)
{
	union {
		u64 bits;
		double f;
	} u;

	u.bits = bits;
	return u.f;
}

INLINE u64 bits64(double f)
{
	union {
		u64 bits;
		double f;
	} u;

	u.f = f;
	return u.bits;
}

INLINE u64 order64(u64 x)
{
	return x >> 63 ? ~x : x | 0x8000000000000000ul;
}

INLINE bool is_nan64(u64 x)
{
	return (x & MAG64) > INF64;
}

INLINE u64 quiet64(u64 x)
{
	return is_nan64(x) ? NAN64 : x;
}

INLINE u64 unless_nan64(u64 x, u64 y, u64 value)
{
	return is_nan64(x) || is_nan64(y) ? NAN64 : value;
}

OPERATOR(max_f64, u64, LIFT_64,
	 unless_nan64(x, y, order64(x) > order64(y) ? x : y))
OPERATOR(min_f64, u64, LIFT_64,
	 unless_nan64(x, y, order64(x) < order64(y) ? x : y))
OPERATOR(sum_f64, u64, LIFT_64, quiet64(bits64(float64(x) + float64(y))))
OPERATOR(prod_f64, u64, LIFT_64, quiet64(bits64(float64(x) * float64(y))))

INLINE u64 average64(u64 x, u64 y)
{
	u64 r = bits64(float64(x) + float64(y));
	bool overflow = (r & MAG64) == INF64 && (x & MAG64) < INF64 &&
			(y & MAG64) < INF64;

	return overflow ? r - 1 : r;
}

OPERATOR(avg_f64, u64, LIFT_64, quiet64(average64(x, y)))

#endif

INLINE i32 narrow_order(u32 x, u32 width)
{
	u32 top = 1u << (width - 1);

	return x & top ? -1 - (i32)(x & (top - 1)) : (i32)x;
}

/* Codes of numbers, without the sign, are below this. */
INLINE u32 narrow_limit(u32 width, u32 man, u32 bias, u32 specials)
{
	if (specials == IEEE)
		return narrow_inf(width, man);
	return (1u << (width - 1)) - (specials == ONLY_NAN ? 1 : 0);
}

INLINE bool narrow_is_number(u32 x, u32 width, u32 man, u32 bias, u32 specials)
{
	u32 top = 1u << (width - 1);

	if (specials == FNUZ)
		return x != top;
	return (x & (top - 1)) < narrow_limit(width, man, bias, specials);
}

/* r is the sum of x and y in an average. If it exceeds the largest number
 * though x and y are numbers, the result is that number. */
INLINE u32 narrow_saturate(u32 x, u32 y, u32 r, u32 width, u32 man, u32 bias,
			   u32 specials)
{
	u32 most = narrow_limit(width, man, bias, specials) - 1;
	bool overflow = !narrow_is_number(r, width, man, bias, specials) &&
			narrow_is_number(x, width, man, bias, specials) &&
			narrow_is_number(y, width, man, bias, specials);

	return overflow ? most | (x & 1u << (width - 1)) : r;
}

/* The same for a fold, whose sum is in float32. */
INLINE float narrow_clamp(float f, u32 width, u32 man, u32 bias, u32 specials)
{
	u32 code = narrow_limit(width, man, bias, specials) - 1;
	u32 most = (code << (23 - man)) + ((127 - bias) << 23);
	u32 u = bits32(f), mag = u & 0x7fffffffu;

	return mag > most && mag < INF32 ? float32(most | (u & 0x80000000u))
					 : f;
}

#define EITHER_NAN(...) \
	(narrow_is_nan(x, __VA_ARGS__) || narrow_is_nan(y, __VA_ARGS__))

#define NARROW(t, T, bits)                                                  \
	OPERATOR(max_##t, u32, LIFT_##bits,                                 \
		 EITHER_NAN(T) ? narrow_nan(T)                              \
		 : narrow_order(x, bits) > narrow_order(y, bits) ? x : y)   \
	OPERATOR(min_##t, u32, LIFT_##bits,                                 \
		 EITHER_NAN(T) ? narrow_nan(T)                              \
		 : narrow_order(x, bits) < narrow_order(y, bits) ? x : y)   \
	OPERATOR(sum_##t, u32, LIFT_##bits,                                 \
		 t##_encode(t##_decode(x) + t##_decode(y)))                 \
	OPERATOR(prod_##t, u32, LIFT_##bits,                                \
		 t##_encode(t##_decode(x) * t##_decode(y)))                 \
	OPERATOR(avg_##t, u32, LIFT_##bits,                                 \
		 narrow_saturate(x, y, sum_##t(x, y) & NARROW_MASK(bits), T)) \
	OPERATOR(average_##t, u32, EACH_##bits,                             \
		 t##_encode(t##_decode(x) * float32(y)))                    \
	ACCUMULATE_##bits(t)                                                \
	ACCUMULATE(t, bits)                                                 \
	AVERAGE(t, bits, T)

#define NARROW_MASK(bits) ((1u << (bits)) - 1)

/* A fold of narrow floats keeps its sums in float32 and rounds once. */
typedef struct {
	float f[8];
} acc_16;

typedef struct {
	float f[16];
} acc_8;

#define ACCUMULATE_16(t)                                                    \
	INLINE acc_16 begin_##t(vec x)                                      \
	{                                                                   \
		acc_16 a;                                                   \
                                                                            \
		a.f[0] = t##_decode(W0(x) & 0xffffu);                       \
		a.f[1] = t##_decode(W0(x) >> 16);                           \
		a.f[2] = t##_decode(W1(x) & 0xffffu);                       \
		a.f[3] = t##_decode(W1(x) >> 16);                           \
		a.f[4] = t##_decode(W2(x) & 0xffffu);                       \
		a.f[5] = t##_decode(W2(x) >> 16);                           \
		a.f[6] = t##_decode(W3(x) & 0xffffu);                       \
		a.f[7] = t##_decode(W3(x) >> 16);                           \
		return a;                                                   \
	}                                                                   \
	INLINE u32 word_##t(float f0, float f1)                             \
	{                                                                   \
		return t##_encode(f0) | t##_encode(f1) << 16;               \
	}                                                                   \
	INLINE vec end_##t(acc_16 a)                                        \
	{                                                                   \
		return VEC(word_##t(a.f[0], a.f[1]), word_##t(a.f[2], a.f[3]), \
			   word_##t(a.f[4], a.f[5]), word_##t(a.f[6], a.f[7])); \
	}

#define DECODE_4(t, at, w)                               \
	a.f[at] = t##_decode((w) & 0xffu);               \
	a.f[(at) + 1] = t##_decode((w) >> 8 & 0xffu);    \
	a.f[(at) + 2] = t##_decode((w) >> 16 & 0xffu);   \
	a.f[(at) + 3] = t##_decode((w) >> 24)

#define ENCODE_4(t, at)                                             \
	(t##_encode(a.f[at]) | t##_encode(a.f[(at) + 1]) << 8 |     \
	 t##_encode(a.f[(at) + 2]) << 16 | t##_encode(a.f[(at) + 3]) << 24)

#define ACCUMULATE_8(t)                                            \
	INLINE acc_8 begin_##t(vec x)                              \
	{                                                          \
		acc_8 a;                                           \
                                                                   \
		DECODE_4(t, 0, W0(x));                             \
		DECODE_4(t, 4, W1(x));                             \
		DECODE_4(t, 8, W2(x));                             \
		DECODE_4(t, 12, W3(x));                            \
		return a;                                          \
	}                                                          \
	INLINE vec end_##t(acc_8 a)                                \
	{                                                          \
		return VEC(ENCODE_4(t, 0), ENCODE_4(t, 4),         \
			   ENCODE_4(t, 8), ENCODE_4(t, 12));       \
	}

#define ACCUMULATE(t, bits)                                         \
	INLINE acc_##bits sum_##t##_step(acc_##bits a, vec x)       \
	{                                                           \
		acc_##bits b = begin_##t(x);                        \
                                                                    \
		UNROLL                                              \
		for (int i = 0; i < 128 / bits; i++)                \
			a.f[i] = a.f[i] + b.f[i];                   \
		return a;                                           \
	}                                                           \
	INLINE acc_##bits prod_##t##_step(acc_##bits a, vec x)      \
	{                                                           \
		acc_##bits b = begin_##t(x);                        \
                                                                    \
		UNROLL                                              \
		for (int i = 0; i < 128 / bits; i++)                \
			a.f[i] = a.f[i] * b.f[i];                   \
		return a;                                           \
	}

/* T consists of several values, so it comes last. */
#define AVERAGE(t, bits, ...)                                       \
	INLINE acc_##bits avg_##t##_step(acc_##bits a, vec x)       \
	{                                                           \
		acc_##bits b = begin_##t(x);                        \
                                                                    \
		UNROLL                                              \
		for (int i = 0; i < 128 / bits; i++)                \
			a.f[i] = float32(average32(bits32(a.f[i]),  \
						   bits32(b.f[i])));\
		return a;                                           \
	}                                                           \
	INLINE vec avg_end_##t(acc_##bits a)                        \
	{                                                           \
		UNROLL                                              \
		for (int i = 0; i < 128 / bits; i++)                \
			a.f[i] = narrow_clamp(a.f[i], __VA_ARGS__); \
		return end_##t(a);                                  \
	}

NARROW(f16, F16, 16)
NARROW(bf16, BF16, 16)
NARROW(e4m3, E4M3, 8)
NARROW(e5m2, E5M2, 8)
NARROW(e4m3fnuz, E4M3FNUZ, 8)
NARROW(e5m2fnuz, E5M2FNUZ, 8)

/* ---- items: what a thread handles at a time ---- */

struct items {
	u64 head;    /* bytes before the first vector */
	u64 vectors; /* of 16 bytes, aligned in the destination */
	/* vectors, and the single elements before and after them */
	u64 count;
};

INLINE u32 skew_of(GLOBAL const u8 *p, GLOBAL const u8 *dst)
{
	return (u32)((size_t)p - (size_t)dst) & 15u;
}

/* If an operand has a skew, each vector is shifted together from two aligned
 * ones. The outermost vectors are handled as single elements, so that no read
 * leaves the buffer. */
INLINE struct items items_of(GLOBAL const u8 *dst, u64 n, u32 bytes, u32 skew)
{
	u64 total = n * bytes;
	u64 more = skew ? 16 : 0;
	struct items it;

	it.head = ((0 - (u64)(size_t)dst) & 15) + more;
	it.vectors = 0;
	if (((size_t)dst & (bytes - 1)) == 0 && total >= it.head + more)
		it.vectors = (total - it.head - more) / 16;
	it.count = it.vectors + (total - 16 * it.vectors) / bytes;
	return it;
}

/* Vectors have the first numbers, then come the single elements. */
INLINE u64 item_at(struct items it, u64 k, u32 bytes)
{
	u64 at;

	if (k < it.vectors)
		return it.head + 16 * k;
	at = (k - it.vectors) * bytes;
	return at < it.head ? at : at + 16 * it.vectors;
}

#define ALIGNED(p) (*(GLOBAL const vec *)(p))

INLINE u32 funnel(u32 low, u32 high, u32 bits)
{
	return (u32)(((u64)high << 32 | low) >> bits);
}

INLINE vec load_skewed(GLOBAL const u8 *p, u32 skew)
{
	vec x = ALIGNED(p - skew), y = ALIGNED(p - skew + 16);
	u32 bits = 8 * (skew & 3), w0, w1, w2, w3, w4, w5;

	w0 = skew & 8 ? W2(x) : W0(x);
	w1 = skew & 8 ? W3(x) : W1(x);
	w2 = skew & 8 ? W0(y) : W2(x);
	w3 = skew & 8 ? W1(y) : W3(x);
	w4 = skew & 8 ? W2(y) : W0(y);
	w5 = skew & 8 ? W3(y) : W1(y);
	if (skew & 4) {
		w0 = w1;
		w1 = w2;
		w2 = w3;
		w3 = w4;
		w4 = w5;
	}
	return VEC(funnel(w0, w1, bits), funnel(w1, w2, bits),
		   funnel(w2, w3, bits), funnel(w3, w4, bits));
}

INLINE u32 load_bytes(GLOBAL const u8 *p, u32 bytes)
{
	u32 x = p[0];

	if (bytes > 1)
		x |= (u32)p[1] << 8;
	if (bytes > 2)
		x |= (u32)p[2] << 16 | (u32)p[3] << 24;
	return x;
}

INLINE void store_bytes(GLOBAL u8 *p, u32 x, u32 bytes)
{
	p[0] = (u8)x;
	if (bytes > 1)
		p[1] = (u8)(x >> 8);
	if (bytes > 2) {
		p[2] = (u8)(x >> 16);
		p[3] = (u8)(x >> 24);
	}
}

/* A single element is returned as the lowest of a vector. */
INLINE vec item_load(GLOBAL const u8 *p, u32 skew, bool whole, u32 bytes)
{
	if (!whole)
		return VEC(load_bytes(p, bytes),
			   bytes == 8 ? load_bytes(p + 4, bytes) : 0, 0, 0);
	return skew ? load_skewed(p, skew) : ALIGNED(p);
}

INLINE void item_store(GLOBAL u8 *p, vec x, bool whole, u32 bytes)
{
	if (whole) {
		*(GLOBAL vec *)p = x;
		return;
	}
	store_bytes(p, W0(x), bytes);
	if (bytes == 8)
		store_bytes(p + 4, W1(x), bytes);
}

/* The items of this thread. Neighbouring threads of a GPU should read
 * neighbouring addresses, so they take turns. A thread of a processor gets
 * consecutive items. */
struct range {
	u64 begin, end, step;
};

INLINE struct range range_of(struct items it, u64 threads)
{
	struct range r;

#ifdef REDUCE_BLOCKED
	u64 share = (it.count + threads - 1) / threads;

	r.begin = THREAD * share;
	r.end = r.begin + share < it.count ? r.begin + share : it.count;
	r.step = 1;
#else
	r.begin = THREAD;
	r.end = it.count;
	r.step = threads;
#endif
	return r;
}

/* ---- kernels ---- */

#ifdef REDUCE_ONE
#define SECOND(first, second, ...) second
#define CHOOSE(...) SECOND(__VA_ARGS__)
#define KERNEL_OF(name) CHOOSE(ONE_##name, INLINE void, ) name
#else
#define KERNEL_OF(name) KERNEL name
#endif

/*
 * dst[i] = a[i] op b[i]. Four vectors of each operand are in flight at a time,
 * to keep the memory busy. The computation is written once, in a loop:
 * unrolled, the long operators would make code that takes seconds to compile
 * and does not fit into the instruction cache.
 */
#define REDUCE(op, bytes)                                                    \
	KERNEL_OF(reduce_##op)(GLOBAL u8 *dst, GLOBAL const u8 *a,           \
			   GLOBAL const u8 *b, u64 n, u64 threads)           \
	{                                                                    \
		const u32 skew_a = skew_of(a, dst), skew_b = skew_of(b, dst); \
		const u32 skew = skew_a | skew_b;                            \
		const struct items it = items_of(dst, n, bytes, skew);       \
		const struct range r = range_of(it, threads);                \
		const u64 whole = r.end < it.vectors ? r.end : it.vectors;   \
		const u64 next = 16 * r.step;                                \
		u64 k = r.begin;                                             \
                                                                             \
		for (; !skew && k + 3 * r.step < whole; k += 4 * r.step) {   \
			const u64 at = it.head + 16 * k;                     \
			GLOBAL const u8 *p = a + at, *q = b + at;            \
			GLOBAL u8 *d = dst + at;                             \
			vec x0 = ALIGNED(p);                                 \
			vec y0 = ALIGNED(q);                                 \
			vec x1 = ALIGNED(p + next);                          \
			vec y1 = ALIGNED(q + next);                          \
			vec x2 = ALIGNED(p + 2 * next);                      \
			vec y2 = ALIGNED(q + 2 * next);                      \
			vec x3 = ALIGNED(p + 3 * next);                      \
			vec y3 = ALIGNED(q + 3 * next);                      \
                                                                             \
			LOOP_##bytes for (int i = 0; i < 4; i++)             \
			{                                                    \
				*(GLOBAL vec *)d = op##_v(x0, y0);           \
				d += next;                                   \
				x0 = x1, x1 = x2, x2 = x3;                   \
				y0 = y1, y1 = y2, y2 = y3;                   \
			}                                                    \
		}                                                            \
		for (; k < r.end; k += r.step) {                             \
			const bool is_vec = k < it.vectors;                  \
			const u64 at = item_at(it, k, bytes);                \
			vec x = item_load(a + at, skew_a, is_vec, bytes);    \
			vec y = item_load(b + at, skew_b, is_vec, bytes);    \
                                                                             \
			item_store(dst + at, op##_v(x, y), is_vec, bytes);   \
		}                                                            \
	}

#define LOOP_1 ROLL
#define LOOP_2 ROLL
#define LOOP_4 UNROLL
#define LOOP_8 UNROLL

/*
 * dst[i] = ((s0[i] op s1[i]) op s2[i]) ..., for nsrc >= 2 sources. Sources
 * beyond eight lie at a distance of pitch bytes, a multiple of 16, behind the
 * source eight before them. With fewer than eight, the remaining arguments are
 * s0 again. Four vectors are read at a time.
 */
#define FOLD(op, bytes, acc_t, first, next, last)                            \
	KERNEL_OF(fold_##op)(GLOBAL u8 *dst, GLOBAL const u8 *s0,            \
			 GLOBAL const u8 *s1, GLOBAL const u8 *s2,           \
			 GLOBAL const u8 *s3, GLOBAL const u8 *s4,           \
			 GLOBAL const u8 *s5, GLOBAL const u8 *s6,           \
			 GLOBAL const u8 *s7, u64 pitch, u64 nsrc, u64 n,    \
			 u64 threads)                                        \
	{                                                                    \
		const u32 k0 = skew_of(s0, dst), k1 = skew_of(s1, dst);      \
		const u32 k2 = skew_of(s2, dst), k3 = skew_of(s3, dst);      \
		const u32 k4 = skew_of(s4, dst), k5 = skew_of(s5, dst);      \
		const u32 k6 = skew_of(s6, dst), k7 = skew_of(s7, dst);      \
		const u32 skew = k0 | k1 | k2 | k3 | k4 | k5 | k6 | k7;      \
		const struct items it = items_of(dst, n, bytes, skew);       \
		const struct range r = range_of(it, threads);                \
                                                                             \
		for (u64 k = r.begin; k < r.end; k += r.step) {              \
			const bool is_vec = k < it.vectors;                  \
			const u64 at = item_at(it, k, bytes);                \
			acc_t acc = first(VEC(0, 0, 0, 0));                  \
                                                                             \
			for (u64 j = 0; j < nsrc; j += 4) {                  \
				const bool up = (j & 4) != 0;                \
				const u64 more = at + (j >> 3) * pitch;      \
				u64 left = nsrc - j < 4 ? nsrc - j : 4;      \
				vec x0, x1, x2, x3;                          \
                                                                             \
				x1 = x2 = x3 = VEC(0, 0, 0, 0);              \
				x0 = item_load((up ? s4 : s0) + more,        \
					       up ? k4 : k0, is_vec, bytes); \
				if (left > 1)                                \
					x1 = item_load((up ? s5 : s1) + more, \
						       up ? k5 : k1, is_vec, \
						       bytes);               \
				if (left > 2)                                \
					x2 = item_load((up ? s6 : s2) + more, \
						       up ? k6 : k2, is_vec, \
						       bytes);               \
				if (left > 3)                                \
					x3 = item_load((up ? s7 : s3) + more, \
						       up ? k7 : k3, is_vec, \
						       bytes);               \
				if (j == 0) {                                \
					acc = first(x0);                     \
					x0 = x1, x1 = x2, x2 = x3;           \
					left--;                              \
				}                                            \
				ROLL for (; left; left--)                    \
				{                                            \
					acc = next(acc, x0);                 \
					x0 = x1, x1 = x2, x2 = x3;           \
				}                                            \
			}                                                    \
			item_store(dst + at, last(acc), is_vec, bytes);      \
		}                                                            \
	}

/* dst[i] = a[i] op scalar. The scalar lies at scalar_at in device memory, or,
 * if that is NULL, its bits are given. */
#define SCALAR(name, op, bytes, spread)                                      \
	KERNEL_OF(name)(GLOBAL u8 *dst, GLOBAL const u8 *a,                  \
		    GLOBAL const u8 *scalar_at, u64 scalar, u64 n,           \
		    u64 threads)                                             \
	{                                                                    \
		const u32 skew = skew_of(a, dst);                            \
		const struct items it = items_of(dst, n, bytes, skew);       \
		const struct range r = range_of(it, threads);                \
		vec y = VEC((u32)scalar, (u32)(scalar >> 32), 0, 0);         \
                                                                             \
		if (scalar_at)                                               \
			y = item_load(scalar_at, 0, false, bytes);           \
		y = spread(y);                                               \
		for (u64 k = r.begin; k < r.end; k += r.step) {              \
			const bool is_vec = k < it.vectors;                  \
			const u64 at = item_at(it, k, bytes);                \
			vec x = item_load(a + at, skew, is_vec, bytes);      \
                                                                             \
			item_store(dst + at, op##_v(x, y), is_vec, bytes);   \
		}                                                            \
	}

INLINE vec spread_4(vec y)
{
	return VEC(W0(y), W0(y), W0(y), W0(y));
}

INLINE vec spread_8(vec y)
{
	return VEC(W0(y), W1(y), W0(y), W1(y));
}

INLINE vec spread_2(vec y)
{
	u32 w = (W0(y) & 0xffffu) * 0x10001u;

	return VEC(w, w, w, w);
}

INLINE vec spread_1(vec y)
{
	u32 w = (W0(y) & 0xffu) * 0x1010101u;

	return VEC(w, w, w, w);
}

INLINE vec same(vec x)
{
	return x;
}

#define EXACT(op, bytes) \
	REDUCE(op, bytes) \
	FOLD(op, bytes, vec, same, op##_v, same)

#define INTEGER_KERNELS(bits, bytes, spread)                              \
	EXACT(sum_u##bits, bytes)                                         \
	EXACT(prod_u##bits, bytes)                                        \
	EXACT(max_i##bits, bytes)                                         \
	EXACT(min_i##bits, bytes)                                         \
	EXACT(max_u##bits, bytes)                                         \
	EXACT(min_u##bits, bytes)                                         \
	SCALAR(scale_u##bits, prod_u##bits, bytes, spread_##bytes)        \
	/* The divisor counts ranks: above 0, below 2^31. */              \
	SCALAR(divide_i##bits, quotient_i##bits, bytes, spread)           \
	SCALAR(divide_u##bits, quotient_u##bits, bytes, spread)

#if WANTED(REDUCE_I8)
INTEGER_KERNELS(8, 1, spread_4)
EXACT(band, 1)
EXACT(bor, 1)
EXACT(bxor, 1)
#endif
#if WANTED(REDUCE_I16)
INTEGER_KERNELS(16, 2, spread_4)
#endif
#if WANTED(REDUCE_I32)
INTEGER_KERNELS(32, 4, spread_4)
#endif
#if WANTED(REDUCE_I64)
INTEGER_KERNELS(64, 8, spread_8)
#endif

/* An average divides before it sums: it multiplies by a reciprocal, which is a
 * float32 for all types but float64. */
#define FLOAT_KERNELS(t, bytes)                            \
	EXACT(sum_##t, bytes)                              \
	EXACT(prod_##t, bytes)                             \
	EXACT(avg_##t, bytes)                              \
	EXACT(max_##t, bytes)                              \
	EXACT(min_##t, bytes)                              \
	SCALAR(scale_##t, prod_##t, bytes, spread_##bytes) \
	SCALAR(divide_##t, prod_##t, bytes, spread_##bytes)

#if WANTED(REDUCE_F32)
FLOAT_KERNELS(f32, 4)
#endif
#if WANTED(REDUCE_F64) && defined(HAVE_F64)
FLOAT_KERNELS(f64, 8)
#endif

#define ROUNDS(op, t, bytes, bits) \
	REDUCE(op##_##t, bytes)    \
	FOLD(op##_##t, bytes, acc_##bits, begin_##t, op##_##t##_step, end_##t)

#define NARROW_KERNELS(t, bytes, bits)                             \
	ROUNDS(sum, t, bytes, bits)                                \
	ROUNDS(prod, t, bytes, bits)                               \
	REDUCE(avg_##t, bytes)                                     \
	FOLD(avg_##t, bytes, acc_##bits, begin_##t, avg_##t##_step, \
	     avg_end_##t)                                          \
	EXACT(max_##t, bytes)                                      \
	EXACT(min_##t, bytes)                                      \
	SCALAR(scale_##t, prod_##t, bytes, spread_##bytes)         \
	SCALAR(divide_##t, average_##t, bytes, spread_4)

#if WANTED(REDUCE_F16)
NARROW_KERNELS(f16, 2, 16)
#endif
#if WANTED(REDUCE_BF16)
NARROW_KERNELS(bf16, 2, 16)
#endif
#if WANTED(REDUCE_E4M3)
NARROW_KERNELS(e4m3, 1, 8)
#endif
#if WANTED(REDUCE_E5M2)
NARROW_KERNELS(e5m2, 1, 8)
#endif
#if WANTED(REDUCE_E4M3FNUZ)
NARROW_KERNELS(e4m3fnuz, 1, 8)
#endif
#if WANTED(REDUCE_E5M2FNUZ)
NARROW_KERNELS(e5m2fnuz, 1, 8)
#endif
