/* SPDX-License-Identifier: BSD-3-Clause */
/* Decides which RDMA ports a rank uses, and by which GID, from what ports.c
 * has found. */
#include "transports/verbs/nic/choose.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/config.h"
#include "transports/verbs/nic/gid.h"

bool verbs_choose_matches(const char *spec, const char *name, unsigned port)
{
	bool exclude = *spec == '^', exact, found = false;

	spec += exclude;
	exact = *spec == '=';
	spec += exact;
	if (!*spec)
		return true;
	while (*spec) {
		size_t len = strcspn(spec, ","), n = strcspn(spec, ",:");
		char *end;

		if (n && !strncmp(spec, name, n) &&
		    (!exact || strlen(name) == n))
			found |= n == len ||
				 (strtoul(spec + n + 1, &end, 10) == port &&
				  end == spec + len);
		spec += len + (spec[len] == ',');
	}
	return found != exclude;
}

/* These drivers ignore IBV_SEND_INLINE, and so look for a registration of
 * memory that has none. */
static const char *const never_inline[] = {"erdma", "mana"};

const char *verbs_choose_objection(enum ibv_transport_type type,
				   const char *driver,
				   const struct ibv_device_attr *attr)
{
	/* Amazon's EFA and Cisco's usNIC have no queue pairs of the usual
	 * kind. */
	if (type != IBV_TRANSPORT_IB && type != IBV_TRANSPORT_IWARP)
		return "it has no reliable connections";
	for (size_t i = 0; i < sizeof(never_inline) / sizeof(char *); i++)
		if (!strcmp(driver, never_inline[i]))
			return "its driver sends nothing inline";
	if (attr->max_qp_rd_atom < 1 || attr->max_qp_init_rd_atom < 1)
		return "it does not read remote memory";
	return NULL;
}

/* Most drivers cannot resize a queue (hns, qedr, all of iWARP). bnxt_re frees
 * the old queue even if its kernel part cannot. Software NICs have no driver of
 * a PCI device (driver is ""). Functions of a device have drivers with names
 * such as "mlx5_core.sf". */
bool verbs_choose_grows(enum verbs_fabric fabric, const char *driver)
{
	return fabric != VERBS_IWARP &&
	       (!*driver || !strncmp(driver, "mlx4_core", 9) ||
		!strncmp(driver, "mlx5_core", 9));
}

/* Two members of a partition reach each other if one of them is a full member,
 * which has bit 15 of the key set. An unused entry has no other bits. */
uint16_t verbs_choose_pkey(const uint16_t *keys, unsigned n)
{
	int64_t wanted = config_int(CONFIG_IB_PKEY);
	unsigned limited = n;

	if (wanted >= 0)
		return (uint16_t)wanted;
	for (unsigned i = 0; i < n; i++) {
		if (!(keys[i] & 0x7fff))
			continue;
		if (keys[i] & 0x8000)
			return (uint16_t)i;
		if (limited == n)
			limited = i;
	}
	return (uint16_t)(limited < n ? limited : 0);
}

/* The GID table of a NIC, and the length of the subnet's prefix for each
 * entry. */
struct entries {
	const struct ibv_gid_entry *e;
	const uint8_t *prefix;
	ssize_t n;
};

/* Returns how good a GID is. Routable ones are better than link-local ones,
 * addresses of this network namespace better than those of others (all are in
 * the table), IPv4 better than IPv6. */
static int worth_of(const struct entries *all, ssize_t i)
{
	const struct ibv_gid_entry *e = &all->e[i];
	int worth = e->gid_type == IBV_GID_TYPE_ROCE_V1 ? 1 : 10;

	if (IN6_IS_ADDR_LINKLOCAL(e->gid.raw))
		return worth;
	return worth + 1 + IN6_IS_ADDR_V4MAPPED(e->gid.raw) +
	       (all->prefix[i] ? 2 : 0);
}

/* Returns the next best entry after `last`: worth less, or worth as much and
 * behind it. -1: there is none. */
static ssize_t next_gid(const struct entries *all, uint8_t port, ssize_t last)
{
	int64_t wanted = config_is_default(CONFIG_IB_GID_INDEX)
				 ? -1
				 : config_int(CONFIG_IB_GID_INDEX);
	int most = last < 0 ? INT_MAX : worth_of(all, last);
	ssize_t chosen = -1;

	for (ssize_t i = 0; i < all->n; i++) {
		const struct ibv_gid_entry *e = &all->e[i];
		int worth = worth_of(all, i);

		if (e->port_num != port || e->gid_index > UINT8_MAX ||
		    (wanted >= 0 && e->gid_index != wanted))
			continue;
		if (worth > most || (worth == most && i <= last))
			continue;
		if (chosen < 0 || worth > worth_of(all, chosen))
			chosen = i;
	}
	return chosen;
}

/* Returns the first entry of the port. On InfiniBand, the subnet manager
 * assigns it. */
static ssize_t first_gid(const struct entries *all, uint8_t port)
{
	ssize_t first = -1, at = -1;

	while ((at = next_gid(all, port, at)) >= 0)
		if (first < 0 || all->e[at].gid_index < all->e[first].gid_index)
			first = at;
	return first;
}

uint32_t verbs_choose_gids(const struct ibv_gid_entry *e, const uint8_t *prefix,
			   ssize_t n, uint8_t port, enum verbs_fabric fabric,
			   struct verbs_gid out[VERBS_GIDS])
{
	const struct entries all = {.e = e, .prefix = prefix, .n = n};
	bool one = fabric == VERBS_INFINIBAND;
	ssize_t at = one ? first_gid(&all, port) : next_gid(&all, port, -1);
	uint32_t type = at < 0 ? 0 : e[at].gid_type, count = 0;

	while (at >= 0 && e[at].gid_type == type && count < VERBS_GIDS) {
		out[count++] =
			(struct verbs_gid){.gid = e[at].gid,
					   .index = (uint8_t)e[at].gid_index,
					   .prefix = prefix[at]};
		at = one ? -1 : next_gid(&all, port, at);
	}
	return count;
}

static bool has_prefix(const uint8_t *a, const uint8_t *b, unsigned bits)
{
	unsigned rest = bits % 8;

	return !memcmp(a, b, bits / 8) &&
	       (!rest || !((a[bits / 8] ^ b[bits / 8]) >> (8 - rest)));
}

/* Returns 2 for the same subnet, 1 for the same address family, otherwise 0. */
static int nearness(const struct verbs_gid *mine, const uint8_t *theirs)
{
	const uint8_t *a = mine->gid.raw;

	if (!IN6_IS_ADDR_V4MAPPED(a) != !IN6_IS_ADDR_V4MAPPED(theirs) ||
	    !IN6_IS_ADDR_LINKLOCAL(a) != !IN6_IS_ADDR_LINKLOCAL(theirs))
		return 0;
	return mine->prefix && has_prefix(a, theirs, mine->prefix) ? 2 : 1;
}

void verbs_choose_pair(const struct verbs_gid *mine, uint32_t n,
		       const uint8_t (*theirs)[16], uint32_t their_n,
		       uint32_t *my_gid, uint32_t *their_gid)
{
	int best = -1;

	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < their_n; k++) {
			int near = nearness(&mine[i], theirs[k]);

			if (near <= best)
				continue;
			best = near;
			*my_gid = i;
			*their_gid = k;
		}
}

static size_t append(char *text, size_t len, size_t at, const char *format, ...)
{
	va_list args;
	int n;

	if (at >= len)
		return at;
	va_start(args, format);
	n = vsnprintf(text + at, len - at, format, args);
	va_end(args);
	return at + (size_t)(n < 0 ? 0 : n);
}

/* Append "mlx5_0:1 InfiniBand 100.0 Gb/s GID fe80::1". */
static size_t describe(const struct verbs_port *p, char *text, size_t len,
		       size_t at)
{
	at = append(text, len, at, "%s%s", at ? ", " : "", p->name);
	if (p->number)
		at = append(text, len, at, ":%u", p->number);
	if (*p->unfit)
		return append(text, len, at, " (%s)", p->unfit);
	return append(text, len, at, " %s %.1f Gb/s GID %s%s",
		      verbs_fabric_name(p->fabric),
		      (double)p->bytes_per_s * 8e-9, p->gid,
		      p->active ? "" : " (no link)");
}

int verbs_choose_usable(struct verbs_port *ports, int n, char *why, size_t len)
{
	const char *spec = config_string(CONFIG_IB_HCA);
	size_t at = 0, kept_at = 0;
	char all[400] = "";
	int replay = 0, matched = 0;

	for (int i = 0; i < n; i++) {
		at = describe(&ports[i], all, sizeof(all), at);
		if (!verbs_choose_matches(spec, ports[i].name, ports[i].number))
			continue;
		matched++;
		if (!ports[i].active || *ports[i].unfit)
			continue;
		kept_at = describe(&ports[i], why, len, kept_at);
		ports[replay++] = ports[i];
	}
	if (!replay && n && !matched)
		snprintf(why, len, "DICOMM_IB_HCA %s matches none of %s", spec,
			 all);
	else if (!replay)
		snprintf(why, len, "%s%s",
			 n ? "no port can be used: " : "no RDMA device", all);
	return replay;
}

static int by_rate(const void *a, const void *b)
{
	const struct verbs_port *p = a, *q = b;
	int order = strcmp(p->name, q->name);

	if (p->bytes_per_s != q->bytes_per_s)
		return p->bytes_per_s < q->bytes_per_s ? 1 : -1;
	return order ? order : p->number - q->number;
}

/* Returns true if another port is nearer and at least as fast. */
static bool is_needless(const struct verbs_port *p,
			const struct verbs_port *all, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (all[i].fabric == p->fabric && all[i].steps < p->steps &&
		    all[i].bytes_per_s >= p->bytes_per_s)
			return true;
	return false;
}

/* Returns how many ports from the first on are as fast as the first. */
static unsigned equals(const struct verbs_port *ports, unsigned n)
{
	unsigned i = 1;

	while (i < n && ports[i].bytes_per_s == ports->bytes_per_s)
		i++;
	return i;
}

unsigned verbs_choose_take(struct verbs_port *ports, unsigned n, unsigned turn)
{
	unsigned most = (unsigned)config_int(CONFIG_IB_NICS);
	unsigned useful = 0, taken = 0, good;
	enum verbs_fabric fabric = ports[0].fabric;
	struct verbs_port all[VERBS_PORTS_MAX];

	for (unsigned i = 1; i < n; i++)
		if (ports[i].fabric < fabric)
			fabric = ports[i].fabric;
	for (unsigned i = 0; i < n; i++)
		if (ports[i].fabric == fabric &&
		    !is_needless(&ports[i], ports, n))
			all[useful++] = ports[i];
	qsort(all, useful, sizeof(*all), by_rate);
	for (unsigned at = 0; at < useful && taken < most; at += good) {
		unsigned want = most - taken;

		good = equals(&all[at], useful - at);
		for (unsigned i = 0; i < want && i < good; i++)
			ports[taken++] = all[at + (turn * want + i) % good];
	}
	qsort(ports, taken, sizeof(*ports), by_rate);
	return taken;
}
