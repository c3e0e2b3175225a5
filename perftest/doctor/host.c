/* SPDX-License-Identifier: BSD-3-Clause */
/* Limits, memory, processors and clock of this host, from /proc and /sys. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "perftest/base/size.h"
#include "perftest/doctor/doctor.h"

#define LOCKED_LEAST (64.0 * (1 << 20)) /* inboxes of some hundred peers */
#define SHM_LEAST (1.0 * (1 << 30))
#define FILES_OF_PROGRAM 256
#define FILES_PER_RANK 4
/* threads of the library, the program and drivers */
#define TASKS_PER_RANK 16
#define CAP_IPC_LOCK 14
/* Version 1 of cgroups has no word for "no limit". */
#define CGROUP_NO_LIMIT 1e18

static void not_known(struct doctor *d)
{
	doctor_tell(d, VERDICT_UNKNOWN, "not known");
}

static enum verdict warn_if(bool cond)
{
	return cond ? VERDICT_WARN : VERDICT_OK;
}

/* ---- numbers: NAN is not known, INFINITY is no limit ---- */

static double number_of(const char *text)
{
	char *end;
	double value = strtod(text, &end);

	if (!strncmp(text, "unlimited", 9) || !strncmp(text, "max", 3) ||
	    value >= CGROUP_NO_LIMIT)
		return INFINITY;
	return end == text ? (double)NAN : value;
}

static const char *size_text(char text[32], double bytes)
{
	if (isinf(bytes))
		return "unlimited";
	size_print(text, 32, bytes);
	return text;
}

/* Returns the hard or the soft limit of this process. */
static double limit(const struct doctor *d, const char *name, bool hard)
{
	char rest[DOCTOR_LINE], values[2][32];

	if (!doctor_read_key(d, rest, "/proc/self/limits", name) ||
	    sscanf(rest, "%31s %31s", values[0], values[1]) != 2)
		return NAN;
	return number_of(values[hard]);
}

/* Finds the cgroup of this process: its folder, of which the first *top
 * characters are the folder of all. Returns 0 or 1 for versions 1 and 2, or -1
 * if it is not known. */
static int find_cgroup(const struct doctor *d, const char *controller,
		       char path[PATH_MAX], size_t *top)
{
	const char *const keys[] = {":%s:", ":%s,", "0::"};
	char rest[DOCTOR_LINE], key[32];

	for (int i = 0; i < 3; i++) {
		snprintf(key, sizeof(key), keys[i], controller);
		if (!doctor_read_key(d, rest, "/proc/self/cgroup", key) ||
		    !strchr(rest, '/'))
			continue;
		*top = (size_t)snprintf(path, PATH_MAX, "/sys/fs/cgroup%s%s",
					i < 2 ? "/" : "",
					i < 2 ? controller : "");
		snprintf(path + *top, PATH_MAX - *top, "%s", strchr(rest, '/'));
		return i == 2;
	}
	return -1;
}

struct cgroup_files {
	const char *controller;
	const char *limit[2], *used[2]; /* version 1, version 2 */
};

/* Returns the least limit of this cgroup and those above it, and how much of
 * that is in use. Where a version has both in one file, they are two words. */
static double cgroup_limit(const struct doctor *d, const struct cgroup_files *f,
			   double *used)
{
	char path[PATH_MAX], line[DOCTOR_LINE], *slash;
	size_t top;
	int v = find_cgroup(d, f->controller, path, &top);
	double least = v < 0 ? (double)NAN : (double)INFINITY, value;

	*used = NAN;
	for (; v >= 0; *slash = '\0') {
		if (doctor_read(d, line, "%s/%s", path, f->limit[v])) {
			value = number_of(line);
			/* -1: no quota */
			if (value >= 0 && value < least) {
				least = value;
				*used = NAN;
				if (f->limit[v] == f->used[v])
					*used = number_of(line +
							  strcspn(line, " "));
				else if (doctor_read(d, line, "%s/%s", path,
						     f->used[v]))
					*used = number_of(line);
			}
		}
		slash = strrchr(path + top, '/');
		if (!slash)
			break;
	}
	return least;
}

/* ---- checks ---- */

static void open_files(struct doctor *d)
{
	double soft = limit(d, "Max open files", false);
	/* The library raises the soft limit by itself. */
	double hard = limit(d, "Max open files", true);
	double room = (hard - FILES_OF_PROGRAM) / FILES_PER_RANK;

	if (isnan(hard))
		not_known(d);
	else
		doctor_tell(d, room < d->ranks ? VERDICT_BAD : VERDICT_OK,
			    "soft limit %.0f, hard limit %.0f; for %d ranks",
			    soft, hard, d->ranks);
}

static void locked_memory(struct doctor *d)
{
	bool rdma = doctor_each(d, "/sys/class/infiniband/*", NULL, NULL);
	double bytes = limit(d, "Max locked memory", false);
	enum verdict verdict = VERDICT_OK;
	char rest[DOCTOR_LINE], text[32];
	bool any = doctor_read_key(d, rest, "/proc/self/status", "CapEff:") &&
		   (strtoull(rest, NULL, 16) >> CAP_IPC_LOCK & 1);

	if (isnan(bytes)) {
		not_known(d);
		return;
	}
	if (rdma && !any && !isinf(bytes))
		verdict = bytes < LOCKED_LEAST ? VERDICT_BAD : VERDICT_WARN;
	doctor_tell(d, verdict, "%s%s%s", size_text(text, bytes),
		    any ? ", and CAP_IPC_LOCK lifts it" : "",
		    rdma ? "" : "; no RDMA needs it");
}

static void tasks(struct doctor *d, double most, double used)
{
	int ranks = doctor_ranks_here(d);
	char text[32] = "";

	if (isnan(most)) {
		not_known(d);
		return;
	}
	if (isinf(most)) {
		doctor_tell(d, VERDICT_OK, "unlimited");
		return;
	}
	if (!isnan(used))
		snprintf(text, sizeof(text), ", %.0f in use", used);
	else
		used = 0;
	doctor_tell(d, warn_if(most - used < 1.0 * ranks * TASKS_PER_RANK),
		    "%.0f%s; for %d ranks of this host", most, text, ranks);
}

static void processes(struct doctor *d)
{
	tasks(d, limit(d, "Max processes", false), NAN);
}

static void cgroup_pids(struct doctor *d)
{
	static const struct cgroup_files files = {
		"pids",
		{"pids.max", "pids.max"},
		{"pids.current", "pids.current"},
	};
	double used, most = cgroup_limit(d, &files, &used);

	tasks(d, most, used);
}

static void cgroup_memory(struct doctor *d)
{
	static const struct cgroup_files files = {
		"memory",
		{"memory.limit_in_bytes", "memory.max"},
		{"memory.usage_in_bytes", "memory.current"},
	};
	double used, most = cgroup_limit(d, &files, &used);
	char text[2][32];

	if (isnan(most))
		not_known(d);
	else if (isnan(used))
		doctor_tell(d, VERDICT_OK, "%s", size_text(text[0], most));
	else
		doctor_tell(d, warn_if(used > 0.9 * most), "%s, %s in use",
			    size_text(text[0], most), size_text(text[1], used));
}

static void cgroup_cpu(struct doctor *d)
{
	static const char *const same = "cpu.max";
	const struct cgroup_files files = {
		"cpu",
		{"cpu.cfs_quota_us", same},
		{"cpu.cfs_period_us", same},
	};
	double period, quota = cgroup_limit(d, &files, &period);
	int ranks = doctor_ranks_here(d);

	if (isinf(quota))
		doctor_tell(d, VERDICT_OK, "no quota");
	else if (isnan(quota) || !(period > 0))
		not_known(d);
	else
		doctor_tell(d, warn_if(quota / period < ranks),
			    "%.3g cpus; for %d ranks of this host",
			    quota / period, ranks);
}

static void ptrace_scope(struct doctor *d)
{
	char line[DOCTOR_LINE];

	if (!doctor_read(d, line, "/proc/sys/kernel/yama/ptrace_scope"))
		doctor_tell(d, VERDICT_UNKNOWN, "not known: no Yama here");
	else
		doctor_tell(d, warn_if(strcmp(line, "0")), "%s", line);
}

static void shared_memory(struct doctor *d)
{
	char path[PATH_MAX], size[32], left[32];
	struct statvfs fs;
	double unit;

	snprintf(path, sizeof(path), "%s/dev/shm", d->root);
	if (statvfs(path, &fs) < 0) {
		not_known(d);
		return;
	}
	unit = (double)fs.f_frsize;
	doctor_tell(d, warn_if(unit * (double)fs.f_blocks < SHM_LEAST),
		    "%s, %s free", size_text(size, unit * (double)fs.f_blocks),
		    size_text(left, unit * (double)fs.f_bavail));
}

struct governors {
	char slow[DOCTOR_LINE]; /* one that is not "performance" */
	int known, fast;
};

static void add_governor(struct doctor *d, const char *path, void *ctx)
{
	struct governors *g = ctx;
	char line[DOCTOR_LINE];

	if (!doctor_read(d, line, "%s", path))
		return;
	g->known++;
	if (!strcmp(line, "performance"))
		g->fast++;
	else
		memcpy(g->slow, line, sizeof(line));
}

static void cpu_governor(struct doctor *d)
{
	struct governors g = {0};

	doctor_each(d,
		    "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/"
		    "scaling_governor",
		    add_governor, &g);
	if (!g.known)
		not_known(d);
	else if (g.fast == g.known)
		doctor_tell(d, VERDICT_OK, "performance on all cpus");
	else
		doctor_tell(d, VERDICT_WARN, "%s on %d of %d cpus", g.slow,
			    g.known - g.fast, g.known);
}

static void clock_source(struct doctor *d)
{
	/* The kernel has to be asked for these. */
	const char *const slow[] = {"hpet", "acpi_pm", "jiffies", "xen",
				    "refined-jiffies"};
	char line[DOCTOR_LINE];
	bool is_slow = false;

	if (!doctor_read(d, line,
			 "/sys/devices/system/clocksource/clocksource0/"
			 "current_clocksource")) {
		not_known(d);
		return;
	}
	for (size_t i = 0; i < sizeof(slow) / sizeof(*slow); i++)
		is_slow |= !strcmp(line, slow[i]);
	doctor_tell(d, warn_if(is_slow), "%s", line);
}

const struct check host_checks[] = {
	{"open files", "a hard limit of 256, and 4 for each rank",
	 "ulimit -Hn; nofile in limits.conf, LimitNOFILE= of systemd",
	 open_files},
	{"locked memory", "unlimited, for RDMA",
	 "ulimit -l unlimited; memlock in limits.conf, LimitMEMLOCK=infinity "
	 "of systemd, docker --ulimit memlock=-1",
	 locked_memory},
	{"processes", "16 for each rank of this host",
	 "ulimit -u; nproc in limits.conf", processes},
	{"cgroup pids", "16 free for each rank of this host",
	 "docker --pids-limit, TasksMax= of systemd", cgroup_pids},
	{"cgroup memory", "a tenth of it is free",
	 "docker --memory, MemoryMax= of systemd, --mem of Slurm",
	 cgroup_memory},
	{"cgroup cpu", "a processor for each rank of this host",
	 "docker --cpuset-cpus in the place of --cpus, CPUQuota= of systemd",
	 cgroup_cpu},
	{"ptrace scope", "0, so that ranks read each other's memory (CMA)",
	 "sysctl -w kernel.yama.ptrace_scope=0", ptrace_scope},
	{"/dev/shm",
	 "1 GiB, for UCX, MPI and PyTorch; dicomm itself needs none",
	 "docker --shm-size=1g or --ipc=host; mount -o remount,size=1g "
	 "/dev/shm",
	 shared_memory},
	{"cpu governor", "performance", "cpupower frequency-set -g performance",
	 cpu_governor},
	{"clock source", "one that is read without the kernel, such as tsc",
	 "dmesg says why the kernel gave tsc up; boot with tsc=reliable",
	 clock_source},
	{NULL, NULL, NULL, NULL},
};
