/* SPDX-License-Identifier: BSD-3-Clause */
/* The paths between two devices, and why a pair does not take a better one. */
#include "src/device/path.h"

#include <stdio.h>
#include <string.h>

static int kind_len(const struct path_end *e)
{
	return (int)strcspn(e->device, ":");
}

static bool is_same_kind(const struct path_end *a, const struct path_end *b)
{
	int n = kind_len(a);

	return kind_len(b) == n && !memcmp(a->device, b->device, (size_t)n);
}

/* Returns the end that has a device, or the first of two. */
static const struct path_end *with_device(const struct path_pair *p)
{
	return p->a.on_host ? &p->b : &p->a;
}

/* ---- one memory for both ---- */

static bool host_leads(const struct path_pair *p)
{
	return p->a.on_host && p->b.on_host;
}

/* ---- ipc ---- */

static bool may_ipc(const struct path_end *a, const struct path_end *b)
{
	if (a->host != b->host || !is_same_kind(a, b))
		return false;
	if (a->pid == b->pid)
		return a->shares_in_process && b->shares_in_process;
	return a->exports && b->exports;
}

static bool ipc_leads(const struct path_pair *p)
{
	return p->mapped && may_ipc(&p->a, &p->b);
}

static void ipc_why(const struct path_pair *p, char *why, size_t len)
{
	const struct path_end *a = &p->a, *b = &p->b;

	if (a->host != b->host)
		snprintf(why, len, "they are in two machines");
	else if (a->on_host || b->on_host)
		snprintf(why, len, "the host does not map memory of %s",
			 with_device(p)->device);
	else if (!is_same_kind(a, b))
		snprintf(why, len,
			 "%.*s and %.*s do not map each other's memory",
			 kind_len(a), a->device, kind_len(b), b->device);
	else if (a->pid == b->pid && !may_ipc(a, b))
		snprintf(why, len, "%s has no memory of its own",
			 (a->shares_in_process ? b : a)->device);
	else if (!may_ipc(a, b))
		snprintf(why, len, "other processes cannot map memory of %s",
			 (a->exports ? b : a)->device);
	else
		snprintf(why, len, "%s", p->why_unmapped);
}

/* ---- mapped ---- */

/* Returns true for a rank of "host". Ranks of other kinds of device may have
 * host memory, too, but not from dicomm_mem_alloc(). */
static bool is_host(const struct path_end *e)
{
	return kind_len(e) == 4 && !memcmp(e->device, "host", 4);
}

bool path_may_share(const struct path_end *a, const struct path_end *b)
{
	return a->host == b->host && a->pid != b->pid &&
	       ((is_host(a) && !b->on_host) || (is_host(b) && !a->on_host));
}

bool path_may_map(const struct path_end *a, const struct path_end *b)
{
	return may_ipc(a, b) || path_may_share(a, b);
}

static bool mapped_leads(const struct path_pair *p)
{
	/* A device can map only part of the host's memory, and a transport
	 * takes all of it. So if one end refuses staging, the transport is the
	 * better path. */
	return p->mapped && path_may_share(&p->a, &p->b) &&
	       !(p->never && p->wired);
}

static void mapped_why(const struct path_pair *p, char *why, size_t len)
{
	const struct path_end *a = &p->a, *b = &p->b;

	if (a->host != b->host)
		snprintf(why, len, "they are in two machines");
	else if (!is_host(a) && !is_host(b))
		snprintf(why, len, "neither is the host");
	else if (a->pid == b->pid)
		snprintf(why, len, "they are in one process");
	else if (p->mapped)
		snprintf(why, len, "only memory of dicomm_mem_alloc can be");
	else
		snprintf(why, len, "%s", p->why_unmapped);
}

/* ---- rdma ---- */

static bool rdma_leads(const struct path_pair *p)
{
	return p->wired;
}

static void rdma_why(const struct path_pair *p, char *why, size_t len)
{
	snprintf(why, len, "no transport reaches the memory of %s%s%s%s",
		 p->wiring_of, *p->wiring ? " (" : "", p->wiring,
		 *p->wiring ? ")" : "");
}

/* ---- all of them ---- */

static bool staged_leads(const struct path_pair *p)
{
	(void)p;
	return true;
}

static const struct {
	const char *name, *how;
	bool (*leads)(const struct path_pair *p);
	/* Writes why a pair does not take this path; NULL: not worth saying. */
	void (*why)(const struct path_pair *p, char *why, size_t len);
} paths[] = {
	[PATH_HOST] = {"host memory", "", host_leads, NULL},
	[PATH_IPC] = {"ipc", "", ipc_leads, ipc_why},
	[PATH_MAPPED] = {"mapped",
			 ", the host copies or reduces what the device writes "
			 "for it",
			 mapped_leads, mapped_why},
	[PATH_RDMA] = {"rdma", "", rdma_leads, rdma_why},
	[PATH_STAGED] = {"staged", "", staged_leads, NULL},
};

enum path path_find(const struct path_pair *p)
{
	int w = 0;

	while (!paths[w].leads(p))
		w++;
	return (enum path)w;
}

void path_why_not(const struct path_pair *p, char *text, size_t len)
{
	enum path taken = path_find(p);
	char why[PATH_TEXT / 2];
	size_t at = 0;

	*text = '\0';
	for (int w = 0; w < (int)taken && at < len; w++) {
		if (!paths[w].why)
			continue;
		paths[w].why(p, why, sizeof(why));
		at += (size_t)snprintf(text + at, len - at, "%snot %s: %s",
				       at ? "; " : "", paths[w].name, why);
	}
}

void path_explain(const struct path_pair *p, char *text, size_t len)
{
	enum path path = path_find(p);
	int n = path == PATH_RDMA ? snprintf(text, len, "rdma by %s", p->wiring)
				  : snprintf(text, len, "%s%s",
					     paths[path].name, paths[path].how);
	size_t at = (size_t)n;

	if (at + 2 >= len)
		return;
	path_why_not(p, text + at + 2, len - at - 2);
	if (text[at + 2])
		memcpy(text + at, "; ", 2);
}
