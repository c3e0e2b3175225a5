/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * DICOMM_RANGES: each operation is a range in the timeline of a profiler, by
 * NVTX (Nsight Systems) or ROCTX (rocprof), from its beginning to its end. The
 * vendor's library is opened at run time; without a profiler its functions do
 * nothing.
 */
#ifndef DICOMM_ENGINE_PROFILER_H
#define DICOMM_ENGINE_PROFILER_H

#include <stdbool.h>
#include <stdint.h>

/* Opens the vendor's library, once in a process. Returns whether ranges are
 * wanted, and there is a library for them; warns of one that was asked for by
 * name and is not there. */
bool profiler_open(void);

/* Begins a range in the domain "dicomm" that any thread may end. NVTX shows
 * `bytes` beside the name, ROCTX the name only. Needs profiler_open(). */
uint64_t profiler_range_begin(const char *name, uint64_t bytes);
void profiler_range_end(uint64_t range);

#endif
