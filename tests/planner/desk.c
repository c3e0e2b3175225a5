/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/planner/desk.h"

#include <check.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[64];

static void clear(void)
{
	static const char *const names[] = {"cluster.json", "model.json",
					    "plan.json",    "profile.json",
					    "out.json",     "other.json"};
	char path[DESK_PATH];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
		unlink(path);
	}
	rmdir(folder);
}

void desk_write(char path[DESK_PATH], const char *name, const char *text)
{
	FILE *f;

	if (!*folder) {
		const char *tmp = getenv("TMPDIR");

		snprintf(folder, sizeof(folder), "%.40s/planner-XXXXXX",
			 tmp ? tmp : "/tmp");
		ck_assert_ptr_nonnull(mkdtemp(folder));
		atexit(clear);
	}
	snprintf(path, DESK_PATH, "%s/%s", folder, name);
	f = fopen(path, "we");
	ck_assert_msg(f, "%s: %m", path);
	ck_assert_int_ge(fputs(text, f), 0);
	ck_assert_int_eq(fclose(f), 0);
}

void desk_source(char path[DESK_PATH], const char *name)
{
	const char *top = getenv("srcdir");

	snprintf(path, DESK_PATH, "%s/tests/planner/%s", top ? top : ".", name);
}

void desk_job(struct job *j, const char *cluster, const char *model, int seq,
	      int batch)
{
	char a[DESK_PATH], b[DESK_PATH];

	desk_write(a, "cluster.json", cluster);
	desk_write(b, "model.json", model);
	ck_assert(job_open(j, a, b, NULL, seq, batch));
}

void desk_stage(struct plan_pipeline *l, uint32_t first, int tp, int unit,
		int last)
{
	struct plan_stage *s = plan_add_stage(l, tp);

	ck_assert_ptr_nonnull(s);
	for (int i = 0; i < tp; i++)
		s->rank[i] = first + (uint32_t)i;
	s->first = unit;
	s->last = last;
}

void desk_hear(void (*fn)(void *ctx), void *ctx, char *text, size_t len)
{
	FILE *f = tmpfile();
	int old = dup(STDERR_FILENO);
	size_t n;

	ck_assert_ptr_nonnull(f);
	fflush(stderr);
	dup2(fileno(f), STDERR_FILENO);
	fn(ctx);
	fflush(stderr);
	dup2(old, STDERR_FILENO);
	close(old);
	rewind(f);
	n = fread(text, 1, len - 1, f);
	text[n] = '\0';
	fclose(f);
}
