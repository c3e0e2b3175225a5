/* SPDX-License-Identifier: BSD-3-Clause */
/* Chooses the kernels for this processor, and makes folds of them. */
#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "src/accel/reduce/reduce.h"
#include "src/accel/reduce/kernels.h"
#include "src/base/fp_state.h"

/* Elements that a fold handles at a time. All its operands and the sum stay in
 * the first-level cache. */
#define FOLD_ELEMS 256

#if defined(__x86_64__)
static bool has_avx2(void)
{
	unsigned eax, ebx, ecx = 0, edx;

	/* Some compilers' __builtin_cpu_supports() does not know f16c. AVX2
	 * implies that the operating system saves the registers of both. */
	return __builtin_cpu_supports("avx2") &&
	       __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}

static bool has_avx512(void)
{
	return has_avx2() && __builtin_cpu_supports("avx512f") &&
	       __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512dq") &&
	       __builtin_cpu_supports("avx512vl");
}
#endif

const struct reduce_kernels *reduce_kernels_usable(int index)
{
	const struct reduce_kernels *usable[4] = {NULL};
	int n = 0;

#if defined(__x86_64__)
	if (has_avx512())
		usable[n++] = &reduce_kernels_avx512;
	if (has_avx2())
		usable[n++] = &reduce_kernels_avx2;
#endif
	usable[n++] = &reduce_kernels_base;
	return index < n ? usable[index] : NULL;
}

/* Relaxed: it points to constants, and every thread would choose the same. */
static const struct reduce_kernels *_Atomic chosen;

static const struct reduce_kernels *kernels(void)
{
	const struct reduce_kernels *k =
		atomic_load_explicit(&chosen, memory_order_relaxed);

	if (!k) {
		k = reduce_kernels_usable(0);
		atomic_store_explicit(&chosen, k, memory_order_relaxed);
	}
	return k;
}

void reduce_kernels_force(const struct reduce_kernels *k)
{
	atomic_store_explicit(&chosen, k, memory_order_relaxed);
}

const char *reduce_isa(void)
{
	return kernels()->isa;
}

reduce_fn reduce_kernel(dicomm_datatype_t type, dicomm_redop_t op, bool stream)
{
	if ((unsigned)type >= TYPE_LIMIT || (unsigned)op >= REDUCE_OP_LIMIT)
		return NULL;
	return kernels()->op[stream][type][op];
}

scale_fn reduce_scale_kernel(dicomm_datatype_t type)
{
	return (unsigned)type < TYPE_LIMIT ? kernels()->scale[type] : NULL;
}

scale_fn reduce_average_kernel(dicomm_datatype_t type)
{
	return (unsigned)type < TYPE_LIMIT ? kernels()->average[type] : NULL;
}

divide_fn reduce_divide_kernel(dicomm_datatype_t type)
{
	return (unsigned)type < TYPE_LIMIT ? kernels()->divide[type] : NULL;
}

void reduce_copy_stream(void *dst, const void *src, size_t bytes)
{
	kernels()->copy_stream(dst, src, bytes);
}

/* The largest finite number of a narrow float type. */
static float largest(dicomm_datatype_t type)
{
	switch (type) {
	case DICOMM_FLOAT16:
		return 0x1.ffcp15f;
	case DICOMM_BFLOAT16:
		return 0x1.fep127f;
	case DICOMM_FLOAT8E4M3:
		return 448;
	case DICOMM_FLOAT8E4M3FNUZ:
		return 240;
	default:
		return 57344; /* both kinds of e5m2 */
	}
}

/* For operators that round: keep the sum in float32 and round once at the
 * end. */
static void fold_narrow(dicomm_datatype_t type, dicomm_redop_t op,
			unsigned char *dst, const void *const *src, int nsrc,
			size_t offset, size_t n)
{
	const struct reduce_kernels *k = kernels();
	fp_state was = fp_state_enter();
	float acc[FOLD_ELEMS];

	k->unpack[type](acc, (const unsigned char *)src[0] + offset, n);
	for (int s = 1; s < nsrc; s++) {
		const unsigned char *a = (const unsigned char *)src[s] + offset;

		if (op == DICOMM_PROD)
			k->multiply[type](acc, a, n);
		else if (op == DICOMM_AVG)
			k->add_average[type](acc, a, n);
		else
			k->add[type](acc, a, n);
	}
	if (op == DICOMM_AVG)
		k->clamp(acc, largest(type), n);
	k->pack[type](dst + offset, acc, n);
	fp_state_leave(was);
}

/* For operators whose result is always exact in the type. dst may be any
 * source, so it is written only in the last step, when all have been read. */
static void fold_exact(reduce_fn fn, unsigned char *dst, const void *const *src,
		       int nsrc, size_t offset, size_t n)
{
	uint64_t acc[FOLD_ELEMS];
	const void *sum = (const unsigned char *)src[0] + offset;

	for (int s = 1; s < nsrc; s++) {
		void *to = s == nsrc - 1 ? (void *)(dst + offset) : acc;

		fn(to, sum, (const unsigned char *)src[s] + offset, n);
		sum = acc;
	}
}

void reduce_fold(dicomm_datatype_t type, dicomm_redop_t op, void *dst,
		 const void *const *src, int nsrc, size_t n)
{
	dicomm_datatype_t plain = type_plain(type, &n);
	reduce_fn fn = reduce_kernel(plain, op, false);
	size_t elem = type_bytes(plain);
	bool rounds =
		type_is_narrow_float(type) &&
		(op == DICOMM_SUM || op == DICOMM_AVG || op == DICOMM_PROD);

	assert(fn && nsrc > 0);
	if (nsrc == 1) {
		memmove(dst, src[0], n * elem);
		return;
	}
	if (nsrc == 2) {
		fn(dst, src[0], src[1], n);
		return;
	}
	for (size_t i = 0; i < n; i += FOLD_ELEMS) {
		size_t part = n - i < FOLD_ELEMS ? n - i : FOLD_ELEMS;

		if (rounds)
			fold_narrow(type, op, dst, src, nsrc, i * elem, part);
		else
			fold_exact(fn, dst, src, nsrc, i * elem, part);
	}
}

/* A block of a weighted sum, as elements of `wide` */
static void weigh(dicomm_datatype_t type, dicomm_datatype_t wide, void *acc,
		  void *term, const void *const *src, const double *weight,
		  int nsrc, size_t offset, size_t n)
{
	const struct reduce_kernels *k = kernels();

	for (int s = 0; s < nsrc; s++) {
		const void *a = (const unsigned char *)src[s] + offset;
		float narrow = (float)weight[s];
		const void *w = wide == DICOMM_FLOAT64
					? (const void *)&weight[s]
					: &narrow;
		void *to = s ? term : acc;

		if (type != wide) {
			k->unpack[type](to, a, n);
			a = to;
		}
		k->scale[wide](to, a, w, n);
		if (s)
			k->op[0][wide][DICOMM_SUM](acc, acc, term, n);
	}
}

void reduce_weighted(dicomm_datatype_t given, void *dst, const void *const *src,
		     const double *weight, int nsrc, size_t n)
{
	const struct reduce_kernels *k = kernels();
	dicomm_datatype_t type = type_plain(given, &n);
	dicomm_datatype_t wide =
		type == DICOMM_FLOAT64 ? DICOMM_FLOAT64 : DICOMM_FLOAT32;
	fp_state was = fp_state_enter();
	uint64_t acc[FOLD_ELEMS], term[FOLD_ELEMS];
	size_t elem = type_bytes(type);

	assert(type_is_float(type) && nsrc > 0);
	for (size_t i = 0; i < n; i += FOLD_ELEMS) {
		size_t part = n - i < FOLD_ELEMS ? n - i : FOLD_ELEMS;
		unsigned char *to = (unsigned char *)dst + i * elem;

		weigh(type, wide, acc, term, src, weight, nsrc, i * elem, part);
		if (type == wide)
			memcpy(to, acc, part * elem);
		else
			k->pack[type](to, (const float *)acc, part);
	}
	fp_state_leave(was);
}
