/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A driver of Level Zero, as its loader opens one: the functions of our mock,
 * which MOCK_ZE names, in the tables that the loader asks for. And a tracer,
 * which the loader's tracing layer calls after each function, above its
 * validation layer: it adds each error that a function returns to the file that
 * ZE_ERRORS names, and the number of calls. ze_loader.sh builds it with the
 * headers of Level Zero; ZE_TABLES is the file that ze_driver.awk makes of
 * them.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <level_zero/ze_ddi.h>
#include <level_zero/zes_ddi.h>
#include <level_zero/zet_ddi.h>
#include <level_zero/layers/zel_tracing_api.h>

#define EXPORT __attribute__((visibility("default")))
#define SET(at, function) (*(void **)&(at) = (void *)(uintptr_t)(function))
/* A callback of every function has the same shape. */
#define SEEN(name)                                                    \
	static void seen_##name(void *parameters, ze_result_t result, \
				void *data, void **instance)          \
	{                                                             \
		(void)parameters;                                     \
		(void)data;                                           \
		(void)instance;                                       \
		seen(#name, result);                                  \
	}

static _Atomic unsigned long calls;

/* Calls of the process itself; the end of a process is not seen by all. */
static void note(const char *line)
{
	const char *name = getenv("ZE_ERRORS");
	FILE *file = name ? fopen(name, "a") : NULL;

	if (!file)
		return;
	fprintf(file, "%s\n", line);
	fclose(file);
}

static void seen(const char *name, ze_result_t result)
{
	char line[128];

	if (atomic_fetch_add(&calls, 1) % 100 == 99)
		note("100 calls");
	if (result == ZE_RESULT_SUCCESS || result == ZE_RESULT_NOT_READY)
		return;
	snprintf(line, sizeof(line), "%s returns 0x%x", name, (unsigned)result);
	note(line);
}

static void *find(const char *name);

#include ZE_TABLES

static void trace(void)
{
	const zel_tracer_desc_t desc = {.stype =
						ZEL_STRUCTURE_TYPE_TRACER_DESC};
	__typeof__(zelTracerCreate) *create;
	__typeof__(zelTracerSetEpilogues) *set;
	__typeof__(zelTracerSetEnabled) *enable;
	static zel_core_callbacks_t all;
	zel_tracer_handle_t tracer;

	SET(create, dlsym(RTLD_DEFAULT, "zelTracerCreate"));
	SET(set, dlsym(RTLD_DEFAULT, "zelTracerSetEpilogues"));
	SET(enable, dlsym(RTLD_DEFAULT, "zelTracerSetEnabled"));
	set_all(&all);
	if (!create || !set || !enable || create(&desc, &tracer) ||
	    set(tracer, &all) || enable(tracer, 1))
		note("the tracer does not start");
}

static ze_result_t init(ze_init_flags_t flags)
{
	ze_pfnInit_t of_mock;
	static int started;

	if (!started++ && getenv("ZE_ERRORS"))
		trace();
	SET(of_mock, find("of the mock"));
	return of_mock(flags);
}

static void *find(const char *name)
{
	static void *mock;
	const char *file = getenv("MOCK_ZE");

	if (!mock)
		mock = dlopen(file ? file : "?", RTLD_NOW | RTLD_LOCAL);
	if (!mock)
		return NULL;
	if (!strcmp(name, "zeInit"))
		return (void *)(uintptr_t)init;
	return dlsym(mock, strcmp(name, "of the mock") ? name : "zeInit");
}
