/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The floating-point state of a thread: rounding mode, flush to zero, denormals
 * are zero, traps. A caller may have changed it, or a library that was built
 * with -ffast-math. The results of reductions must not depend on it; otherwise
 * ranks would get different bits. So code that computes floats on a caller's
 * thread does this:
 *
 *     fp_state was = fp_state_enter();
 *     compute();               (in another function that is not inlined: the
 *     fp_state_leave(was);      compiler may move arithmetic over these calls)
 *
 * If the state is the default already, this only reads it, once. Otherwise
 * fp_state_leave() restores it exactly, including exception flags.
 */
#ifndef DICOMM_BASE_FP_STATE_H
#define DICOMM_BASE_FP_STATE_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__x86_64__)

/* MXCSR: round to nearest, keep denormals, mask all exceptions. The lowest six
 * bits are exception flags, which do not affect results. */
#define FP_STATE_DEFAULT 0x1f80u
#define FP_STATE_FLAGS 0x3fu

typedef uint32_t fp_state;

static inline fp_state fp_state_read(void)
{
	fp_state now;

	__asm__ volatile("stmxcsr %0" : "=m"(now));
	return now;
}

static inline void fp_state_write(fp_state s)
{
	__asm__ volatile("ldmxcsr %0" : : "m"(s) : "memory");
}

#elif defined(__aarch64__)

/* FPCR: round to nearest, keep denormals, no traps. Exception flags are in
 * another register. */
#define FP_STATE_DEFAULT 0u
#define FP_STATE_FLAGS 0u

typedef uint64_t fp_state;

static inline fp_state fp_state_read(void)
{
	fp_state now;

	__asm__ volatile("mrs %0, fpcr" : "=r"(now));
	return now;
}

static inline void fp_state_write(fp_state s)
{
	__asm__ volatile("msr fpcr, %0" : : "r"(s) : "memory");
}

#else
#error "fp_state.h: this processor's floating-point control is not known"
#endif

static inline bool fp_state_is_default(fp_state s)
{
	return (s & ~(fp_state)FP_STATE_FLAGS) == FP_STATE_DEFAULT;
}

static inline fp_state fp_state_enter(void)
{
	fp_state was = fp_state_read();

	if (__builtin_expect(!fp_state_is_default(was), 0))
		fp_state_write(FP_STATE_DEFAULT);
	return was;
}

static inline void fp_state_leave(fp_state was)
{
	if (__builtin_expect(!fp_state_is_default(was), 0))
		fp_state_write(was);
}

#endif
