/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loops that the compiler vectorises. The build compiles this file once for
 * each instruction set: its flags choose the set, REDUCE_ISA is its name.
 *
 * Results have the same bits for every instruction set and compiler. So there
 * is no fused multiply-add (-ffp-contract=off). Every NaN is replaced by one
 * pattern, since which operand's payload survives depends on the order of
 * operands, which the compiler may swap. Conversions that the processor lacks
 * or does only nearly right (vcvtneps2bf16 flushes denormals) use integer
 * arithmetic.
 */
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "src/accel/reduce/kernels.h"
#include "src/base/fp_state.h"

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define TEXT_(a) #a
#define TEXT(a) TEXT_(a)

/* The caller promises that dst is an operand or overlaps none, so iterations
 * are independent. Without this the compiler would test for overlap and take
 * the slow loop when dst is an operand. */
#ifdef __clang__
/* Without optimisation, or with sanitizers, clang warns that it did
 * not vectorise. */
#pragma clang diagnostic ignored "-Wpass-failed"
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

#define KERNEL static __attribute__((noinline)) void
#define INLINE static inline __attribute__((always_inline))

/* Types of elements in memory, which may have any alignment and any
 * declared type. */
#define IN_MEMORY __attribute__((aligned(1), may_alias))
typedef int8_t i8_mem IN_MEMORY;
typedef uint8_t u8_mem IN_MEMORY;
typedef int16_t i16_mem IN_MEMORY;
typedef uint16_t u16_mem IN_MEMORY;
typedef int32_t i32_mem IN_MEMORY;
typedef uint32_t u32_mem IN_MEMORY;
typedef int64_t i64_mem IN_MEMORY;
typedef uint64_t u64_mem IN_MEMORY;
typedef float f32_mem IN_MEMORY;
typedef double f64_mem IN_MEMORY;

INLINE uint32_t bits32(float f)
{
	uint32_t u;

	memcpy(&u, &f, sizeof(u));
	return u;
}

INLINE float float32(uint32_t u)
{
	float f;

	memcpy(&f, &u, sizeof(f));
	return f;
}

INLINE uint64_t bits64(double f)
{
	uint64_t u;

	memcpy(&u, &f, sizeof(u));
	return u;
}

INLINE double float64(uint64_t u)
{
	double f;

	memcpy(&f, &u, sizeof(f));
	return f;
}

#ifdef __SSE2__

/* Non-temporal stores */

#define LINE 64

/* dst lies at the beginning of a cache line, src anywhere. */
INLINE void stream_line(void *dst, const void *src)
{
#if defined(__AVX512F__)
	_mm512_stream_si512(dst, _mm512_loadu_si512(src));
#elif defined(__AVX__)
	__m256i *d = dst;
	const __m256i *s = src;

	for (int i = 0; i < 2; i++)
		_mm256_stream_si256(d + i, _mm256_loadu_si256(s + i));
#else
	__m128i *d = dst;
	const __m128i *s = src;

	for (int i = 0; i < 4; i++)
		_mm_stream_si128(d + i, _mm_loadu_si128(s + i));
#endif
}

INLINE size_t to_next_line(const void *p)
{
	return -(uintptr_t)p % LINE;
}

static void copy_stream(void *dst, const void *src, size_t bytes)
{
	size_t head = to_next_line(dst);
	unsigned char *d = dst;
	const unsigned char *s = src;

	if (head > bytes)
		head = bytes;
	memcpy(d, s, head);
	for (bytes -= head, d += head, s += head; bytes >= LINE;
	     bytes -= LINE, d += LINE, s += LINE)
		stream_line(d, s);
	memcpy(d, s, bytes);
	_mm_sfence();
}

/* In bytes: small enough to stay in the first-level cache with its operands,
 * large enough to hide the call. */
#define STREAM_BLOCK 1024

/* Reduce into a block on the stack, and store the block past the caches. */
INLINE void stream_reduce(reduce_fn fn, size_t elem, void *dst, const void *a,
			  const void *b, size_t n)
{
	_Alignas(LINE) unsigned char block[STREAM_BLOCK];
	size_t left = n * elem;
	size_t part = to_next_line(dst);
	unsigned char *d = dst;
	const unsigned char *p = a, *q = b;

	/* If no element begins at a line boundary, reduce all without
	 * streaming. */
	if (part % elem != 0 || part > left)
		part = left;
	fn(d, p, q, part / elem);
	for (;;) {
		d += part;
		p += part;
		q += part;
		left -= part;
		part = left < STREAM_BLOCK ? left / LINE * LINE : STREAM_BLOCK;
		if (part == 0)
			break;
		fn(block, p, q, part / elem);
		for (size_t i = 0; i < part; i += LINE)
			stream_line(d + i, block + i);
	}
	if (left)
		fn(d, p, q, left / elem);
	_mm_sfence();
}

#else

/* Other processors notice when whole lines are written, and do not read them
 * first. So a block on the stack would gain nothing. */

static void copy_stream(void *dst, const void *src, size_t bytes)
{
	memcpy(dst, src, bytes);
}

INLINE void stream_reduce(reduce_fn fn, size_t elem, void *dst, const void *a,
			  const void *b, size_t n)
{
	(void)elem;
	fn(dst, a, b, n);
}

#endif

/* Defines name_stream(), which streams what name() computes. */
#define STREAM(name, elem)                                            \
	KERNEL name##_stream(void *dst, const void *a, const void *b, \
			     size_t n)                                \
	{                                                             \
		stream_reduce(name, elem, dst, a, b, n);              \
	}

/* Defines guarded_name(), which gives the results of name() whatever
 * floating-point state the calling thread has set. It costs one read of that
 * state if the state is the default. */
#define GUARDED(name, third, argument)                                        \
	static void guarded_##name(void *dst, const void *a, third, size_t n) \
	{                                                                     \
		fp_state was = fp_state_read();                               \
                                                                              \
		if (fp_state_is_default(was)) {                               \
			name(dst, a, argument, n);                            \
			return;                                               \
		}                                                             \
		fp_state_write(FP_STATE_DEFAULT);                             \
		name(dst, a, argument, n);                                    \
		fp_state_write(was);                                          \
	}

/* Defines a reduction. value is an expression of the operands x and y. */
#define REDUCE(name, type, value)                                      \
	KERNEL name(void *dst, const void *a, const void *b, size_t n) \
	{                                                              \
		type##_mem *d = dst;                                   \
		const type##_mem *p = a, *q = b;                       \
                                                                       \
		INDEPENDENT                                            \
		for (size_t i = 0; i < n; i++) {                       \
			const type##_mem x = p[i], y = q[i];           \
                                                                       \
			d[i] = (type##_mem)(value);                    \
		}                                                      \
	}                                                              \
	STREAM(name, sizeof(type##_mem))

#define SCALE(name, type, value)                                            \
	KERNEL name(void *dst, const void *a, const void *scalar, size_t n) \
	{                                                                   \
		const type##_mem y = *(const type##_mem *)scalar;           \
		const type##_mem *p = a;                                    \
		type##_mem *d = dst;                                        \
                                                                            \
		INDEPENDENT                                                 \
		for (size_t i = 0; i < n; i++) {                            \
			const type##_mem x = p[i];                          \
                                                                            \
			d[i] = (type##_mem)(value);                         \
		}                                                           \
	}

/* Integers. In two's complement, operators that wrap are the same for signed
 * and unsigned types. */

#define INTEGERS(i, u, wide)                  \
	REDUCE(sum_##u, u, (wide)x + (wide)y) \
	REDUCE(prod_##u, u, (wide)x *(wide)y) \
	REDUCE(band_##u, u, x &y)             \
	REDUCE(bor_##u, u, x | y)             \
	REDUCE(bxor_##u, u, x ^ y)            \
	REDUCE(max_##u, u, x > y ? x : y)     \
	REDUCE(min_##u, u, x < y ? x : y)     \
	REDUCE(max_##i, i, x > y ? x : y)     \
	REDUCE(min_##i, i, x < y ? x : y)     \
	SCALE(scale_##u, u, (wide)x *(wide)y)

INTEGERS(i8, u8, uint32_t)
INTEGERS(i16, u16, uint32_t)
INTEGERS(i32, u32, uint32_t)
INTEGERS(i64, u64, uint64_t)

/*
 * Processors divide vectors of floats, but not of integers. The truncated
 * quotient is exact: a quotient that is no integer differs from one by at least
 * 1 / divisor, and that is more than the rounding error while x has fewer bits
 * than the significand. A divisor with more bits than x gives 0 however it is
 * rounded.
 */
#define DIVIDE(name, type, middle, result)                             \
	KERNEL name(void *dst, const void *a, long divisor, size_t n)  \
	{                                                              \
		const middle y = (middle)divisor;                      \
		const type##_mem *p = a;                               \
		type##_mem *d = dst;                                   \
                                                                       \
		INDEPENDENT                                            \
		for (size_t i = 0; i < n; i++)                         \
			d[i] = (type##_mem)(result)((middle)p[i] / y); \
	}

DIVIDE(divide_i8, i8, float, int32_t)
DIVIDE(divide_u8, u8, float, int32_t)
DIVIDE(divide_i16, i16, float, int32_t)
DIVIDE(divide_u16, u16, float, int32_t)
DIVIDE(divide_i32, i32, double, int32_t)
DIVIDE(divide_u32, u32, double, int64_t)
DIVIDE(divide_i64, i64, int64_t, int64_t)
DIVIDE(divide_u64, u64, uint64_t, uint64_t)

/* float32 and float64 */

#define NAN32 0x7fc00000u
#define NAN64 0x7ff8000000000000u
#define INF32 0x7f800000u
#define INF64 0x7ff0000000000000u
#define MAG64 0x7fffffffffffffffu

INLINE float quiet32(float f)
{
	return f != f ? float32(NAN32) : f;
}

INLINE double quiet64(double f)
{
	return f != f ? float64(NAN64) : f;
}

/* Of two zeros, a comparison yields the second. The AND of the bits of both
 * choices gives +0 to max, and the OR gives -0 to min. Of unequal numbers both
 * choices are the same. */
INLINE float max32(float x, float y)
{
	float r = float32(bits32(x > y ? x : y) & bits32(y > x ? y : x));

	return x != x || y != y ? float32(NAN32) : r;
}

INLINE float min32(float x, float y)
{
	float r = float32(bits32(x < y ? x : y) | bits32(y < x ? y : x));

	return x != x || y != y ? float32(NAN32) : r;
}

INLINE double max64(double x, double y)
{
	double r = float64(bits64(x > y ? x : y) & bits64(y > x ? y : x));

	return x != x || y != y ? float64(NAN64) : r;
}

INLINE double min64(double x, double y)
{
	double r = float64(bits64(x < y ? x : y) | bits64(y < x ? y : x));

	return x != x || y != y ? float64(NAN64) : r;
}

/*
 * One step of an average's sum. The inputs are scaled before, so the exact sum
 * does not exceed the largest number, but partial sums that were rounded up
 * may. Then the result is that number. An infinite operand still makes the sum
 * infinite.
 */
INLINE float average32(float x, float y)
{
	float r = x + y;
	uint32_t u = bits32(r);
	bool overflow = (u & 0x7fffffff) == INF32 &&
			(bits32(x) & 0x7fffffff) < INF32 &&
			(bits32(y) & 0x7fffffff) < INF32;

	return overflow ? float32(u - 1) : r;
}

INLINE double average64(double x, double y)
{
	double r = x + y;
	uint64_t u = bits64(r);
	bool overflow = (u & MAG64) == INF64 && (bits64(x) & MAG64) < INF64 &&
			(bits64(y) & MAG64) < INF64;

	return overflow ? float64(u - 1) : r;
}

REDUCE(avg_f32, f32, quiet32(average32(x, y)))
REDUCE(avg_f64, f64, quiet64(average64(x, y)))
REDUCE(sum_f32, f32, quiet32(x + y))
REDUCE(prod_f32, f32, quiet32(x *y))
REDUCE(max_f32, f32, max32(x, y))
REDUCE(min_f32, f32, min32(x, y))
SCALE(scale_f32, f32, quiet32(x *y))
REDUCE(sum_f64, f64, quiet64(x + y))
REDUCE(prod_f64, f64, quiet64(x *y))
REDUCE(max_f64, f64, max64(x, y))
REDUCE(min_f64, f64, min64(x, y))
SCALE(scale_f64, f64, quiet64(x *y))

/*
 * The format of a narrow float. The compiler treats it as constant, since every
 * function that takes one is inlined.
 */
enum specials {
	IEEE,        /* infinities, NaNs above them */
	ONLY_NAN,    /* all ones but the sign is NaN: OCP e4m3 */
	NAN_IS_ZERO, /* NaN instead of -0: FNUZ */
};

struct narrow {
	unsigned width, man, bias;
	enum specials specials;
	uint32_t inf, nan;
};

static const struct narrow f16 = {16, 10, 15, IEEE, 0x7c00, 0x7e00};
static const struct narrow e5m2 = {8, 2, 15, IEEE, 0x7c, 0x7e};
static const struct narrow e4m3 = {8, 3, 7, ONLY_NAN, 0x7f, 0x7f};
static const struct narrow e4m3fnuz = {8, 3, 8, NAN_IS_ZERO, 0x80, 0x80};
static const struct narrow e5m2fnuz = {8, 2, 16, NAN_IS_ZERO, 0x80, 0x80};
/* used only for comparisons; bfloat16 is converted by shifting */
static const struct narrow bf16 = {16, 7, 127, IEEE, 0x7f80, 0x7fc0};

/* Convert to float32, which holds every value. Denormals of the narrow type
 * become normal by a subtraction; the processor would take 100 cycles to
 * convert its own. */
INLINE float narrow_decode(uint32_t x, struct narrow t)
{
	uint32_t sign = x >> (t.width - 1) << 31;
	uint32_t code = x & ((1u << (t.width - 1)) - 1);
	uint32_t mag = code << (23 - t.man);
	uint32_t normal = mag + ((127 - t.bias) << 23);
	uint32_t one = (128 - t.bias) << 23;
	uint32_t denormal = bits32(float32(mag + one) - float32(one));
	uint32_t r = code < 1u << t.man ? denormal : normal;

	if (t.specials == IEEE)
		r = code >= t.inf ? mag | INF32 : r;
	else if (t.specials == ONLY_NAN)
		r = code == t.nan ? NAN32 : r;
	else
		r = x == t.nan ? NAN32 : r;
	return float32(r | sign);
}

/* Convert from float32, rounding to nearest even. What exceeds the
 * largest value by half a step or more becomes infinity, or NaN in a type
 * without infinity. */
INLINE uint32_t narrow_encode(float f, struct narrow t)
{
	unsigned shift = 23 - t.man;
	uint32_t top = 1u << (t.width - 1);
	uint32_t u = bits32(f);
	uint32_t sign = u >> 31 << (t.width - 1);
	uint32_t mag = u & 0x7fffffff;
	uint32_t half = (1u << (shift - 1)) - 1 - ((127 - t.bias) << 23);
	uint32_t normal = (mag + half + (mag >> shift & 1)) >> shift;
	/* The last bit of this number has the weight of a denormal's last
	 * bit. */
	uint32_t one = (127 + 24 - t.bias - t.man) << 23;
	uint32_t denormal = bits32(float32(mag) + float32(one)) - one;
	uint32_t r = mag < (128 - t.bias) << 23 ? denormal : normal;

	if (t.specials == IEEE) {
		r = (r > t.inf ? t.inf : r) | sign;
		return mag > INF32 ? t.nan : r;
	}
	if (t.specials == ONLY_NAN)
		return r >= t.nan ? t.nan : r | sign;
	r = r >= top ? 0 | top : r | (r ? sign : 0);
	return r;
}

INLINE bool narrow_is_nan(uint32_t x, struct narrow t)
{
	uint32_t code = x & ((1u << (t.width - 1)) - 1);

	if (t.specials == IEEE)
		return code > t.inf;
	if (t.specials == ONLY_NAN)
		return code == t.nan;
	return x == t.nan;
}

/* r is the sum of x and y in an average. As average32(): if r overflows though
 * x and y are numbers, the result is the largest number. */
INLINE uint32_t narrow_saturate(uint32_t x, uint32_t y, uint32_t r,
				struct narrow t)
{
	uint32_t top = 1u << (t.width - 1);
	uint32_t limit = t.specials == NAN_IS_ZERO ? top : t.inf;
	uint32_t most = limit - 1;
	bool overflow;

	if (t.specials == NAN_IS_ZERO)
		overflow = r == top && x != top && y != top;
	else
		overflow = (r & (top - 1)) >= limit &&
			   (x & (top - 1)) < limit && (y & (top - 1)) < limit;
	return overflow ? most | (x & top) : r;
}

#define AVERAGE_BLOCK 256

/* Sums a block at a time on the stack, since dst may be an operand. */
#define NARROW_AVERAGE(t, u)                                                 \
	KERNEL avg_##t(void *dst, const void *a, const void *b, size_t n)    \
	{                                                                    \
		u##_mem r[AVERAGE_BLOCK];                                    \
		const u##_mem *p = a, *q = b;                                \
		u##_mem *d = dst;                                            \
                                                                             \
		while (n > 0) {                                              \
			size_t part = n < AVERAGE_BLOCK ? n : AVERAGE_BLOCK; \
                                                                             \
			sum_##t(r, p, q, part);                              \
			INDEPENDENT                                          \
			for (size_t i = 0; i < part; i++)                    \
				d[i] = (u##_mem)narrow_saturate(p[i], q[i],  \
								r[i], t);    \
			n -= part;                                           \
			p += part;                                           \
			q += part;                                           \
			d += part;                                           \
		}                                                            \
	}                                                                    \
	STREAM(avg_##t, sizeof(u##_mem))

/* Scale an input of an average. The factor is a float32, so the product is
 * rounded once. */
#define AVERAGE(name, type, encode, decode)                                 \
	KERNEL name(void *dst, const void *a, const void *scalar, size_t n) \
	{                                                                   \
		const float y = *(const f32_mem *)scalar;                   \
		const type##_mem *p = a;                                    \
		type##_mem *d = dst;                                        \
                                                                            \
		INDEPENDENT                                                 \
		for (size_t i = 0; i < n; i++)                              \
			d[i] = (type##_mem)encode(decode(p[i]) * y);        \
	}

/* Sums and products compute in float32. max and min choose one of the operands
 * by comparing its bits, with sign and magnitude turned into one number. */
#define NARROW_ORDER(t, i, u)                                                \
	INLINE i##_mem t##_key(u##_mem x)                                    \
	{                                                                    \
		return (i##_mem)((i##_mem)x ^ ((i##_mem)x >> (t.width - 1) & \
					       ((1 << (t.width - 1)) - 1))); \
	}                                                                    \
	INLINE u##_mem t##_quiet(u##_mem x, u##_mem y, u##_mem r)            \
	{                                                                    \
		bool nan = narrow_is_nan(x, t) || narrow_is_nan(y, t);       \
                                                                             \
		return nan ? (u##_mem)t.nan : r;                             \
	}                                                                    \
	REDUCE(max_##t, u, t##_quiet(x, y, t##_key(x) > t##_key(y) ? x : y)) \
	REDUCE(min_##t, u, t##_quiet(x, y, t##_key(x) < t##_key(y) ? x : y))

/* Defines a step of a fold: acc[i] from a[i]. f is a[i] as float32. */
#define ACCUMULATE(name, type, decode, value)            \
	KERNEL name(float *acc, const void *a, size_t n) \
	{                                                \
		const type##_mem *p = a;                 \
                                                         \
		INDEPENDENT                              \
		for (size_t i = 0; i < n; i++) {         \
			const float f = decode(p[i]);    \
                                                         \
			acc[i] = value;                  \
		}                                        \
	}

#define PACK(name, type, encode)                           \
	KERNEL name(void *dst, const float *acc, size_t n) \
	{                                                  \
		type##_mem *d = dst;                       \
                                                           \
		INDEPENDENT                                \
		for (size_t i = 0; i < n; i++)             \
			d[i] = (type##_mem)encode(acc[i]); \
	}

#define NARROW_CODEC(t)                     \
	INLINE float t##_decode(uint32_t x) \
	{                                   \
		return narrow_decode(x, t); \
	}                                   \
	INLINE uint32_t t##_encode(float f) \
	{                                   \
		return narrow_encode(f, t); \
	}

#define NARROW_SUMS(t, u)                                              \
	NARROW_AVERAGE(t, u)                                           \
	AVERAGE(average_##t, u, t##_encode, t##_decode)                \
	SCALE(scale_##t, u, t##_encode(t##_decode(x) * t##_decode(y))) \
	ACCUMULATE(unpack_##t, u, t##_decode, f)                       \
	ACCUMULATE(add_##t, u, t##_decode, acc[i] + f)                 \
	ACCUMULATE(multiply_##t, u, t##_decode, acc[i] * f)            \
	PACK(pack_##t, u, t##_encode)

#define NARROW_ARITHMETIC(t, u)                                        \
	REDUCE(sum_##t, u, t##_encode(t##_decode(x) + t##_decode(y)))  \
	REDUCE(prod_##t, u, t##_encode(t##_decode(x) * t##_decode(y))) \
	NARROW_SUMS(t, u)

NARROW_ORDER(f16, i16, u16)
NARROW_ORDER(bf16, i16, u16)
NARROW_ORDER(e4m3, i8, u8)
NARROW_ORDER(e5m2, i8, u8)
NARROW_ORDER(e4m3fnuz, i8, u8)
NARROW_ORDER(e5m2fnuz, i8, u8)

NARROW_CODEC(e4m3)
NARROW_CODEC(e5m2)
NARROW_CODEC(e4m3fnuz)
NARROW_CODEC(e5m2fnuz)

/* bfloat16 is the upper half of float32 */

/* Only the upper half of the result is used. */
INLINE uint32_t bf16_round(float f)
{
	uint32_t u = bits32(f);

	return f != f ? NAN32 : u + 0x7fff + (u >> 16 & 1);
}

INLINE float bf16_decode(uint32_t x)
{
	return float32(x << 16);
}

INLINE uint32_t bf16_encode(float f)
{
	return bf16_round(f) >> 16;
}

#define UPPER 0xffff0000u

/* Handles two elements at once, each in its half of a word. That spares
 * the vector units packing and unpacking, which would cost more than
 * the arithmetic. */
#define REDUCE_BF16(name, op)                                                \
	KERNEL name(void *dst, const void *a, const void *b, size_t n)       \
	{                                                                    \
		const u32_mem *p = a, *q = b;                                \
		u32_mem *d = dst;                                            \
		size_t pairs = n / 2;                                        \
                                                                             \
		INDEPENDENT                                                  \
		for (size_t i = 0; i < pairs; i++) {                         \
			uint32_t low = bf16_round(                           \
				float32(p[i] << 16) op float32(q[i] << 16)); \
			uint32_t high = bf16_round(float32(                  \
				p[i] & UPPER) op float32(q[i] & UPPER));     \
                                                                             \
			d[i] = low >> 16 | (high & UPPER);                   \
		}                                                            \
		if (n % 2) {                                                 \
			float x = bf16_decode(((const u16_mem *)a)[n - 1]);  \
			float y = bf16_decode(((const u16_mem *)b)[n - 1]);  \
                                                                             \
			((u16_mem *)dst)[n - 1] =                            \
				(u16_mem)bf16_encode(x op y);                \
		}                                                            \
	}                                                                    \
	STREAM(name, sizeof(u16_mem))

REDUCE_BF16(sum_bf16, +)
REDUCE_BF16(prod_bf16, *)
NARROW_AVERAGE(bf16, u16)
AVERAGE(average_bf16, u16, bf16_encode, bf16_decode)
SCALE(scale_bf16, u16, bf16_encode(bf16_decode(x) * bf16_decode(y)))
ACCUMULATE(unpack_bf16, u16, bf16_decode, f)
ACCUMULATE(add_bf16, u16, bf16_decode, acc[i] + f)
/* bfloat16 is the only narrow type whose finite values can add up to more than
 * float32 holds. */
ACCUMULATE(add_average_bf16, u16, bf16_decode, average32(acc[i], f))
ACCUMULATE(multiply_bf16, u16, bf16_decode, acc[i] * f)
PACK(pack_bf16, u16, bf16_encode)

/* float16 */

#if !defined(__F16C__) && !defined(__aarch64__)

NARROW_CODEC(f16)
NARROW_ARITHMETIC(f16, u16)

NARROW_ARITHMETIC(e4m3, u8)
NARROW_ARITHMETIC(e5m2, u8)
NARROW_ARITHMETIC(e4m3fnuz, u8)
NARROW_ARITHMETIC(e5m2fnuz, u8)

#else

/* Compilers do not vectorise these conversions, so the vectors are written
 * out. */
#ifdef __AVX512F__
typedef __m512 lanes;

INLINE lanes lanes_load(const void *p)
{
	return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}

INLINE void lanes_store(void *p, lanes f)
{
	__mmask16 nan = _mm512_cmp_ps_mask(f, f, _CMP_UNORD_Q);

	f = _mm512_mask_mov_ps(f, nan, _mm512_set1_ps(float32(NAN32)));
	/* All lanes. _mm512_cvtps_ph() is the same, but without optimisation
	 * it is a macro that gcc warns of. */
	_mm256_storeu_si256(
		p, _mm512_maskz_cvtps_ph(0xffff, f, _MM_FROUND_TO_NEAREST_INT));
}

INLINE lanes lanes_all(float f)
{
	return _mm512_set1_ps(f);
}
#elif defined(__F16C__)
typedef __m256 lanes;

INLINE lanes lanes_load(const void *p)
{
	return _mm256_cvtph_ps(_mm_loadu_si128(p));
}

INLINE void lanes_store(void *p, lanes f)
{
	__m256 nan = _mm256_cmp_ps(f, f, _CMP_UNORD_Q);

	f = _mm256_blendv_ps(f, _mm256_set1_ps(float32(NAN32)), nan);
	_mm_storeu_si128(p, _mm256_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT));
}

INLINE lanes lanes_all(float f)
{
	return _mm256_set1_ps(f);
}
#else
typedef float32x4_t lanes;

INLINE lanes lanes_load(const void *p)
{
	float16x4_t half;

	memcpy(&half, p, sizeof(half));
	return vcvt_f32_f16(half);
}

INLINE void lanes_store(void *p, lanes f)
{
	uint32x4_t number = vceqq_f32(f, f);
	float16x4_t half =
		vcvt_f16_f32(vbslq_f32(number, f, vdupq_n_f32(float32(NAN32))));

	memcpy(p, &half, sizeof(half));
}

INLINE lanes lanes_all(float f)
{
	return vdupq_n_f32(f);
}
#endif

#define LANES (sizeof(lanes) / sizeof(float))

#ifdef __F16C__
INLINE float f16_decode(uint16_t x)
{
	return _cvtsh_ss(x);
}

INLINE uint16_t f16_encode(float f)
{
	return _cvtss_sh(quiet32(f), _MM_FROUND_TO_NEAREST_INT);
}
#else
INLINE float f16_decode(uint16_t x)
{
	__fp16 half;

	memcpy(&half, &x, sizeof(half));
	return half;
}

INLINE uint16_t f16_encode(float f)
{
	__fp16 half = (__fp16)quiet32(f);
	uint16_t x;

	memcpy(&x, &half, sizeof(x));
	return x;
}
#endif

#define REDUCE_F16(name, op)                                                 \
	KERNEL name(void *dst, const void *a, const void *b, size_t n)       \
	{                                                                    \
		const u16_mem *p = a, *q = b;                                \
		u16_mem *d = dst;                                            \
		size_t i = 0;                                                \
                                                                             \
		for (; i + LANES <= n; i += LANES)                           \
			lanes_store(d + i,                                   \
				    lanes_load(p + i) op lanes_load(q + i)); \
		for (; i < n; i++)                                           \
			d[i] = f16_encode(f16_decode(p[i])                   \
						  op f16_decode(q[i]));      \
	}                                                                    \
	STREAM(name, sizeof(u16_mem))

#define ACCUMULATE_F16(name, value)                               \
	KERNEL name(float *acc, const void *a, size_t n)          \
	{                                                         \
		const u16_mem *p = a;                             \
		size_t i = 0;                                     \
                                                                  \
		for (; i + LANES <= n; i += LANES) {              \
			lanes f = lanes_load(p + i), sum;         \
                                                                  \
			memcpy(&sum, acc + i, sizeof(sum));       \
			sum = value;                              \
			memcpy(acc + i, &sum, sizeof(sum));       \
		}                                                 \
		for (; i < n; i++) {                              \
			float f = f16_decode(p[i]), sum = acc[i]; \
                                                                  \
			sum = value;                              \
			acc[i] = sum;                             \
		}                                                 \
	}

REDUCE_F16(sum_f16, +)
REDUCE_F16(prod_f16, *)
ACCUMULATE_F16(unpack_f16, f)
ACCUMULATE_F16(add_f16, sum + f)
ACCUMULATE_F16(multiply_f16, sum *f)

INLINE void scale_f16_by(void *dst, const void *a, float y, size_t n)
{
	const lanes all = lanes_all(y);
	const u16_mem *p = a;
	u16_mem *d = dst;
	size_t i = 0;

	for (; i + LANES <= n; i += LANES)
		lanes_store(d + i, lanes_load(p + i) * all);
	for (; i < n; i++)
		d[i] = f16_encode(f16_decode(p[i]) * y);
}

KERNEL scale_f16(void *dst, const void *a, const void *scalar, size_t n)
{
	scale_f16_by(dst, a, f16_decode(*(const u16_mem *)scalar), n);
}

KERNEL average_f16(void *dst, const void *a, const void *scalar, size_t n)
{
	scale_f16_by(dst, a, *(const f32_mem *)scalar, n);
}

NARROW_AVERAGE(f16, u16)

KERNEL pack_f16(void *dst, const float *acc, size_t n)
{
	u16_mem *d = dst;
	size_t i = 0;

	for (; i + LANES <= n; i += LANES) {
		lanes f;

		memcpy(&f, acc + i, sizeof(f));
		lanes_store(d + i, f);
	}
	for (; i < n; i++)
		d[i] = f16_encode(acc[i]);
}

/*
 * Sums and products of two 8-bit floats are three times as fast by way of
 * float16, which holds every such value. e5m2 is converted as it is; e4m3 is
 * divided by 2 to the difference of the biases, so that denormals stay
 * denormals. Results are rounded twice, which does not show: for sums, float16
 * has twice the bits and two more, and products are too short to come that near
 * to a tie. (The tests try all pairs.)
 */
INLINE uint16_t narrow_to_half(uint8_t x, struct narrow t)
{
	uint16_t code = x & 0x7f;
	uint16_t sign = (uint16_t)((x & 0x80) << 8);
	uint16_t half = (uint16_t)(code << (10 - t.man));

	if (t.specials == ONLY_NAN) {
		half = code == 0x7f ? 0x7e00 : half;
	} else if (t.specials == NAN_IS_ZERO) {
		/* FNUZ e5m2 has one exponent more than float16 at the lower
		 * end, for which float16's denormals serve, and so one less at
		 * the upper end. */
		if (t.bias == 16) {
			int16_t denormal = (int16_t)(code << 7);
			int16_t normal = (int16_t)(half - 0x400);

			half = (uint16_t)(normal > denormal ? normal
							    : denormal);
		}
		half = x == 0x80 ? 0x7e00 : half;
	}
	return half | sign;
}

/* NaN is 0x7e00 here, which reads as NaN in the narrow type, or exceeds its
 * largest value. */
INLINE uint8_t narrow_from_half(uint16_t half, struct narrow t)
{
	uint16_t mag = half & 0x7fff;
	uint16_t sign = half >> 8 & 0x80;
	uint16_t twice = (uint16_t)(mag << 1);
	uint16_t next = (uint16_t)(mag + 0x400);
	uint16_t r = t.man == 3 ? twice : mag;

	if (t.bias == 16)
		r = twice < next ? twice : next;
	r = (uint16_t)(r + 0x7f + (r >> 8 & 1)) >> 8;
	if (t.specials == IEEE)
		return (uint8_t)(r | sign);
	if (t.specials == ONLY_NAN)
		return (uint8_t)(r >= 0x7f ? 0x7f : r | sign);
	r = r == 0 ? 0 : (uint16_t)(r > 0x7f ? 0x80 : r | sign);
	return (uint8_t)r;
}

#define HALF_BLOCK 256

/* x[i] = x[i] * y[i] * scale */
KERNEL prod_halves(uint16_t *x, const uint16_t *y, float scale, size_t n)
{
	const lanes scales = lanes_all(scale);
	size_t i = 0;

	for (; i + LANES <= n; i += LANES)
		lanes_store(x + i,
			    lanes_load(x + i) * lanes_load(y + i) * scales);
	for (; i < n; i++)
		x[i] = f16_encode(f16_decode(x[i]) * f16_decode(y[i]) * scale);
}

INLINE void reduce_by_half(struct narrow t, bool product, void *dst,
			   const void *a, const void *b, size_t n)
{
	/* Both operands are divided by this, so their product is divided by
	 * its square. Multiplying once leaves it divided as
	 * narrow_from_half() expects. */
	const float scale = t.man == 3 ? (float)(1 << (15 - t.bias)) : 1;
	uint16_t x[HALF_BLOCK], y[HALF_BLOCK];
	const u8_mem *p = a, *q = b;
	u8_mem *d = dst;

	while (n > 0) {
		size_t part = n < HALF_BLOCK ? n : HALF_BLOCK;

		INDEPENDENT
		for (size_t i = 0; i < part; i++) {
			x[i] = narrow_to_half(p[i], t);
			y[i] = narrow_to_half(q[i], t);
		}
		if (product)
			prod_halves(x, y, scale, part);
		else
			sum_f16(x, x, y, part);
		INDEPENDENT
		for (size_t i = 0; i < part; i++)
			d[i] = narrow_from_half(x[i], t);
		n -= part;
		p += part;
		q += part;
		d += part;
	}
}

#define NARROW_BY_HALF(t)                                                  \
	KERNEL sum_##t(void *dst, const void *a, const void *b, size_t n)  \
	{                                                                  \
		reduce_by_half(t, false, dst, a, b, n);                    \
	}                                                                  \
	STREAM(sum_##t, 1)                                                 \
	KERNEL prod_##t(void *dst, const void *a, const void *b, size_t n) \
	{                                                                  \
		reduce_by_half(t, true, dst, a, b, n);                     \
	}                                                                  \
	STREAM(prod_##t, 1)                                                \
	NARROW_SUMS(t, u8)

NARROW_BY_HALF(e4m3)
NARROW_BY_HALF(e5m2)
NARROW_BY_HALF(e4m3fnuz)
NARROW_BY_HALF(e5m2fnuz)

#endif

/* Limit finite numbers beyond the largest one of a narrow type to that one. */
KERNEL clamp(float *acc, float most, size_t n)
{
	uint32_t limit = bits32(most);

	INDEPENDENT
	for (size_t i = 0; i < n; i++) {
		uint32_t u = bits32(acc[i]), mag = u & 0x7fffffff;
		bool beyond = mag > limit && mag < INF32;

		acc[i] = float32(beyond ? limit | (u & 0x80000000) : u);
	}
}

/* What the table points to: kernels that work in any floating-point state of
 * the calling thread. */

#define GUARDED_OP(name)                \
	GUARDED(name, const void *b, b) \
	GUARDED(name##_stream, const void *b, b)
#define GUARDED_SCALE(name) GUARDED(name, const void *scalar, scalar)
#define GUARDED_DIVIDE(name) GUARDED(name, long divisor, divisor)

/* An average is scaled by the reciprocal of the number of ranks. */
#define FLOAT_DIVIDE(t, type)                                               \
	KERNEL divide_##t(void *dst, const void *a, long divisor, size_t n) \
	{                                                                   \
		const type y = (type)1 / (type)divisor;                     \
                                                                            \
		average_##t(dst, a, &y, n);                                 \
	}                                                                   \
	GUARDED_DIVIDE(divide_##t)

#define GUARDED_FLOAT(t, type)   \
	GUARDED_OP(sum_##t)      \
	GUARDED_OP(prod_##t)     \
	GUARDED_OP(avg_##t)      \
	GUARDED_SCALE(scale_##t) \
	FLOAT_DIVIDE(t, type)

/* For these types the reciprocal is an element of the type, so scaling is
 * the same. */
#define average_f32 scale_f32
#define average_f64 scale_f64
GUARDED_FLOAT(f16, float)
GUARDED_FLOAT(bf16, float)
GUARDED_FLOAT(e4m3, float)
GUARDED_FLOAT(e5m2, float)
GUARDED_FLOAT(e4m3fnuz, float)
GUARDED_FLOAT(e5m2fnuz, float)
GUARDED_FLOAT(f32, float)
GUARDED_FLOAT(f64, double)
GUARDED_SCALE(average_f16)
GUARDED_SCALE(average_bf16)
GUARDED_SCALE(average_e4m3)
GUARDED_SCALE(average_e5m2)
GUARDED_SCALE(average_e4m3fnuz)
GUARDED_SCALE(average_e5m2fnuz)
/* max and min of narrow types look at bits only and need no guard. */
GUARDED_OP(max_f32)
GUARDED_OP(min_f32)
GUARDED_OP(max_f64)
GUARDED_OP(min_f64)
/* These compute quotients of floats. */
GUARDED_DIVIDE(divide_i8)
GUARDED_DIVIDE(divide_u8)
GUARDED_DIVIDE(divide_i16)
GUARDED_DIVIDE(divide_u16)
GUARDED_DIVIDE(divide_i32)
GUARDED_DIVIDE(divide_u32)

/* A complex number is a pair of floats, of which each is reduced by itself. */
#define PAIRS(name, third, argument)                                        \
	static void pairs_##name(void *dst, const void *a, third, size_t n) \
	{                                                                   \
		guarded_##name(dst, a, argument, 2 * n);                    \
	}

#define PAIRS_OP(name)                \
	PAIRS(name, const void *b, b) \
	PAIRS(name##_stream, const void *b, b)

#define PAIRS_FLOAT(t)                               \
	PAIRS_OP(sum_##t)                            \
	PAIRS_OP(avg_##t)                            \
	PAIRS(scale_##t, const void *scalar, scalar) \
	PAIRS(divide_##t, long divisor, divisor)

PAIRS_FLOAT(f32)
PAIRS_FLOAT(f64)

#define PAIRS_OPS(t, s)                          \
	{                                        \
		[DICOMM_SUM] = pairs_sum_##t##s, \
		[DICOMM_AVG] = pairs_avg_##t##s, \
	}

/* Of bytes that are 0 or 1 */
#define BOOL_OPS(s)                                                   \
	{                                                             \
		[DICOMM_MAX] = max_u8##s, [DICOMM_MIN] = min_u8##s,   \
		[DICOMM_BAND] = band_u8##s, [DICOMM_BOR] = bor_u8##s, \
		[DICOMM_BXOR] = bxor_u8##s,                           \
	}

#define INTEGER_OPS(i, u, s)                                            \
	{                                                               \
		[DICOMM_SUM] = sum_##u##s, [DICOMM_PROD] = prod_##u##s, \
		[DICOMM_MAX] = max_##i##s, [DICOMM_MIN] = min_##i##s,   \
		[DICOMM_AVG] = sum_##u##s, [DICOMM_BAND] = band_##u##s, \
		[DICOMM_BOR] = bor_##u##s, [DICOMM_BXOR] = bxor_##u##s, \
	}

#define FLOAT_OPS(t, s, m)                                                  \
	{                                                                   \
		[DICOMM_SUM] = guarded_sum_##t##s,                          \
		[DICOMM_PROD] = guarded_prod_##t##s,                        \
		[DICOMM_AVG] = guarded_avg_##t##s,                          \
		[DICOMM_MAX] = m##max_##t##s, [DICOMM_MIN] = m##min_##t##s, \
	}

/* s is empty or _stream. */
#define ALL_OPS(s)                                                  \
	{                                                           \
		[DICOMM_INT8] = INTEGER_OPS(i8, u8, s),             \
		[DICOMM_UINT8] = INTEGER_OPS(u8, u8, s),            \
		[DICOMM_INT16] = INTEGER_OPS(i16, u16, s),          \
		[DICOMM_UINT16] = INTEGER_OPS(u16, u16, s),         \
		[DICOMM_INT32] = INTEGER_OPS(i32, u32, s),          \
		[DICOMM_UINT32] = INTEGER_OPS(u32, u32, s),         \
		[DICOMM_INT64] = INTEGER_OPS(i64, u64, s),          \
		[DICOMM_UINT64] = INTEGER_OPS(u64, u64, s),         \
		[DICOMM_FLOAT16] = FLOAT_OPS(f16, s, ),             \
		[DICOMM_FLOAT32] = FLOAT_OPS(f32, s, guarded_),     \
		[DICOMM_FLOAT64] = FLOAT_OPS(f64, s, guarded_),     \
		[DICOMM_BFLOAT16] = FLOAT_OPS(bf16, s, ),           \
		[DICOMM_FLOAT8E4M3] = FLOAT_OPS(e4m3, s, ),         \
		[DICOMM_FLOAT8E5M2] = FLOAT_OPS(e5m2, s, ),         \
		[DICOMM_FLOAT8E4M3FNUZ] = FLOAT_OPS(e4m3fnuz, s, ), \
		[DICOMM_FLOAT8E5M2FNUZ] = FLOAT_OPS(e5m2fnuz, s, ), \
		[DICOMM_BOOL] = BOOL_OPS(s),                        \
		[DICOMM_COMPLEX64] = PAIRS_OPS(f32, s),             \
		[DICOMM_COMPLEX128] = PAIRS_OPS(f64, s),            \
	}

#define NARROW_TYPES(verb)                                                    \
	[DICOMM_FLOAT16] = verb##_f16, [DICOMM_BFLOAT16] = verb##_bf16,       \
	[DICOMM_FLOAT8E4M3] = verb##_e4m3, [DICOMM_FLOAT8E5M2] = verb##_e5m2, \
	[DICOMM_FLOAT8E4M3FNUZ] = verb##_e4m3fnuz,                            \
	[DICOMM_FLOAT8E5M2FNUZ] = verb##_e5m2fnuz

const struct reduce_kernels PASTE(reduce_kernels_, REDUCE_ISA) = {
	.isa = TEXT(REDUCE_ISA),
	.op = {ALL_OPS(), ALL_OPS(_stream)},
	.scale =
		{
			[DICOMM_INT8] = scale_u8,
			[DICOMM_UINT8] = scale_u8,
			[DICOMM_INT16] = scale_u16,
			[DICOMM_UINT16] = scale_u16,
			[DICOMM_INT32] = scale_u32,
			[DICOMM_UINT32] = scale_u32,
			[DICOMM_INT64] = scale_u64,
			[DICOMM_UINT64] = scale_u64,
			[DICOMM_FLOAT32] = guarded_scale_f32,
			[DICOMM_FLOAT64] = guarded_scale_f64,
			NARROW_TYPES(guarded_scale),
			[DICOMM_COMPLEX64] = pairs_scale_f32,
			[DICOMM_COMPLEX128] = pairs_scale_f64,
		},
	.average =
		{
			[DICOMM_FLOAT32] = guarded_scale_f32,
			[DICOMM_FLOAT64] = guarded_scale_f64,
			NARROW_TYPES(guarded_average),
			[DICOMM_COMPLEX64] = pairs_scale_f32,
			[DICOMM_COMPLEX128] = pairs_scale_f64,
		},
	.divide =
		{
			[DICOMM_INT8] = guarded_divide_i8,
			[DICOMM_UINT8] = guarded_divide_u8,
			[DICOMM_INT16] = guarded_divide_i16,
			[DICOMM_UINT16] = guarded_divide_u16,
			[DICOMM_INT32] = guarded_divide_i32,
			[DICOMM_UINT32] = guarded_divide_u32,
			[DICOMM_INT64] = divide_i64,
			[DICOMM_UINT64] = divide_u64,
			[DICOMM_FLOAT32] = guarded_divide_f32,
			[DICOMM_FLOAT64] = guarded_divide_f64,
			NARROW_TYPES(guarded_divide),
			[DICOMM_COMPLEX64] = pairs_divide_f32,
			[DICOMM_COMPLEX128] = pairs_divide_f64,
		},
	.unpack = {NARROW_TYPES(unpack)},
	.add = {NARROW_TYPES(add)},
	.add_average = {[DICOMM_FLOAT16] = add_f16,
			[DICOMM_BFLOAT16] = add_average_bf16,
			[DICOMM_FLOAT8E4M3] = add_e4m3,
			[DICOMM_FLOAT8E5M2] = add_e5m2,
			[DICOMM_FLOAT8E4M3FNUZ] = add_e4m3fnuz,
			[DICOMM_FLOAT8E5M2FNUZ] = add_e5m2fnuz},
	.multiply = {NARROW_TYPES(multiply)},
	.pack = {NARROW_TYPES(pack)},
	.clamp = clamp,
	.copy_stream = copy_stream,
};
