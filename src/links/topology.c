/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/links/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/config.h"
#include "src/base/host.h"
#include "src/base/log.h"
#include "src/core/member.h"
#include "src/topo/cluster.h"

/* The assumed rate of an adapter of which nothing is known. Only its being
 * equal everywhere matters. */
#define ASSUMED_BYTES_PER_S UINT64_C(1250000000)
/* Limit for sending rank 0's file to ranks that have none, in bytes over all
 * ranks. */
#define SPREAD_MOST (UINT64_C(64) << 20)

/* What is known about the hosts before their links are known. */
struct hosts {
	uint32_t n;
	uint32_t *of;      /* [rank] */
	uint32_t *first;   /* [host]: its first rank */
	const char **name; /* [host] */
};

static void hosts_free(struct hosts *h)
{
	free(h->of);
	free(h->first);
	free(h->name);
}

static dicomm_result_t hosts_find(struct dicomm_comm *comm, struct hosts *h)
{
	uint32_t ranks = (uint32_t)comm->ranks;

	*h = (struct hosts){.of = calloc(ranks, sizeof(*h->of)),
			    .first = calloc(ranks, sizeof(*h->first)),
			    .name = calloc(ranks, sizeof(*h->name))};
	if (!h->of || !h->first || !h->name) {
		hosts_free(h);
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_init_rank: no memory for the hosts of %d "
			    "ranks",
			    comm->ranks);
	}
	if (comm->apart)
		for (h->n = 0; h->n < ranks; h->n++)
			h->of[h->n] = h->first[h->n] = h->n;
	else
		h->n = host_number_all(&comm->members->host,
				       sizeof(*comm->members), ranks, h->of,
				       h->first);
	for (uint32_t k = 0; k < h->n; k++)
		h->name[k] = control_where(comm->control, (int)h->first[k]);
	return DICOMM_SUCCESS;
}

/* What each rank tells about its inherited table and its file. */
struct claim {
	uint64_t inherited; /* hash of the table; 0: none */
	uint64_t hash, len; /* of the file; 0: none */
};

/* Returns the hash of comm->links, which is only a proposal at this time; 0 if
 * there is none or it does not fit the hosts. */
static uint64_t inherited(const struct dicomm_comm *comm, const struct hosts *h)
{
	const struct links *l = comm->links;
	size_t n = (size_t)comm->ranks;

	if (!l || memcmp(l->node_of, h->of, n * sizeof(*h->of)) != 0)
		return 0;
	return links_hash(l);
}

static dicomm_result_t mismatch(struct dicomm_comm *comm,
				const struct claim *all, int rank)
{
	return FAIL(DICOMM_ERR_INVALID_USAGE,
		    "ranks disagree: DICOMM_TOPO_FILE of rank %d (%s) is %s",
		    rank, control_where(comm->control, rank),
		    all[0].hash ? "not that of rank 0"
				: "set, and that of rank 0 is not");
}

/* Sends rank 0's file to the ranks that have none. */
static dicomm_result_t spread(struct dicomm_comm *comm, uint64_t len,
			      struct cluster **mine)
{
	size_t n = (size_t)len;
	char *all, *text;
	dicomm_result_t status;

	if (len * (uint64_t)comm->ranks > SPREAD_MOST)
		return FAIL(DICOMM_ERR_INVALID_USAGE,
			    "DICOMM_TOPO_FILE: some of %d ranks have no file "
			    "none, and rank 0's, of %zu bytes, is too long to "
			    "send: give it to all of them",
			    comm->ranks, n);
	all = calloc((size_t)comm->ranks + 1, n);
	if (!all)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_init_rank: no memory for the topology file");
	text = all + (size_t)comm->ranks * n;
	if (*mine)
		memcpy(text, (*mine)->text, n);
	status = control_allgather(comm->control, text, all, n, comm->join_ms);
	if (status == DICOMM_SUCCESS && !*mine)
		status = cluster_parse(all, n, "of rank 0", mine);
	free(all);
	return status;
}

/* Chooses for all ranks: the inherited table if all have the same, else the
 * file if all have the same, else nothing. */
static dicomm_result_t agree(struct dicomm_comm *comm, const struct hosts *h,
			     struct cluster **mine, bool *inherits)
{
	struct claim claim = {.inherited = inherited(comm, h),
			      .hash = *mine ? cluster_hash(*mine) : 0,
			      .len = *mine ? (*mine)->len : 0};
	struct claim *all = calloc((size_t)comm->ranks, sizeof(*all));
	dicomm_result_t status;
	bool missing = false;

	if (!all)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_init_rank: no memory for %d ranks",
			    comm->ranks);
	status = control_allgather(comm->control, &claim, all, sizeof(claim),
				   comm->join_ms);
	*inherits = claim.inherited;
	for (int r = 0; status == DICOMM_SUCCESS && r < comm->ranks; r++)
		*inherits &= all[r].inherited == claim.inherited;
	for (int r = 1;
	     status == DICOMM_SUCCESS && !*inherits && r < comm->ranks; r++) {
		if (all[r].hash && all[r].hash != all[0].hash)
			status = mismatch(comm, all, r);
		missing |= all[r].hash != all[0].hash;
	}
	if (status == DICOMM_SUCCESS && missing)
		status = spread(comm, all[0].len, mine);
	free(all);
	return status;
}

/* Makes links of which nothing is known: all hosts are equal. If host_of is
 * NULL, each rank is a host. */
static dicomm_result_t assume(const uint32_t *host_of, uint32_t ranks,
			      uint32_t hosts, struct links **out)
{
	struct links *l = links_create(ranks, hosts, 1, 1);

	if (!l)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "no memory for the links of %u hosts", hosts);
	l->class[0].nic =
		(struct links_pipe){ASSUMED_BYTES_PER_S, ASSUMED_BYTES_PER_S};
	for (uint32_t r = 0; r < ranks; r++)
		l->node_of[r] = host_of ? host_of[r] : r;
	return links_finish(l, out);
}

static void disinherit(struct dicomm_comm *comm)
{
	links_free(comm->links);
	comm->links = NULL;
}

/* Returns true if the file gives the rate of any link between hosts. */
static bool has_rates(const struct links *l)
{
	for (uint32_t i = 0; i < l->classes; i++)
		if (links_slower(l->class[i].nic.up, l->class[i].nic.down) ||
		    l->class[i].rank)
			return true;
	for (uint32_t i = 0; i < l->islands; i++)
		if (links_slower(l->island[i].up, l->island[i].down))
			return true;
	return false;
}

static dicomm_result_t find_links(struct dicomm_comm *comm,
				  const struct hosts *h, struct cluster **file)
{
	const char *path = config_string(CONFIG_TOPO_FILE);

	if (*path)
		TRY(cluster_read(path, file));
	else
		path = "of rank 0";
	TRY(agree(comm, h, file, &comm->links_known));
	if (comm->links_known)
		return DICOMM_SUCCESS;
	disinherit(comm);
	if (*file)
		TRY(cluster_links(*file, path, (uint32_t)comm->ranks, h->of,
				  h->n, h->name, &comm->links));
	if (*file && !comm->links && comm->rank == 0)
		log_warn("DICOMM_TOPO_FILE: it describes %u hosts without "
			 "names, the communicator has %u: not used; name the "
			 "hosts",
			 (*file)->total_nodes, h->n);
	comm->links_known = comm->links && has_rates(comm->links);
	if (comm->links)
		return DICOMM_SUCCESS;
	return assume(h->of, (uint32_t)comm->ranks, h->n, &comm->links);
}

/* Returns true if, on some node, the rank that would measure the uplink can
 * only use a part of it. */
static bool is_in_parts(const struct links *l)
{
	for (uint32_t n = 0; n < l->nodes; n++) {
		const struct links_class *c = links_node(l, n);
		uint64_t uplink = links_slower(c->nic.up, c->nic.down);

		if (links_slower(uplink, c->rank) != uplink)
			return true;
	}
	return false;
}

dicomm_result_t topology_find(struct dicomm_comm *comm)
{
	struct cluster *file = NULL;
	struct hosts hosts;
	dicomm_result_t status;

	TRY(hosts_find(comm, &hosts));
	if (hosts.n > 1) {
		status = find_links(comm, &hosts, &file);
		if (comm->links_known)
			comm->links_summed = is_in_parts(comm->links);
	} else {
		/* A bad file is named here, too, though nothing needs it. */
		disinherit(comm);
		status = *config_string(CONFIG_TOPO_FILE)
				 ? cluster_read(config_string(CONFIG_TOPO_FILE),
						&file)
				 : DICOMM_SUCCESS;
	}
	cluster_free(file);
	hosts_free(&hosts);
	return status;
}

/* Returns true if both communicators use the same transports, so that the rates
 * still hold. */
static bool are_alike(const struct dicomm_comm *a, const struct dicomm_comm *b)
{
	return !strcmp(comm_transports(a), comm_transports(b));
}

dicomm_result_t topology_inherit(struct dicomm_comm *comm,
				 struct dicomm_comm *parent,
				 const uint32_t *was)
{
	dicomm_result_t status = DICOMM_SUCCESS;

	if (!are_alike(comm, parent) ||
	    !strcmp(config_string(CONFIG_PROBE), "on"))
		return DICOMM_SUCCESS;
	pthread_mutex_lock(&parent->links_lock);
	if (parent->links_known)
		status = links_part(parent->links, (uint32_t)comm->ranks, was,
				    &comm->links);
	pthread_mutex_unlock(&parent->links_lock);
	return status;
}

dicomm_result_t topology_plan(const char *path, int ranks, bool apart,
			      struct links **out)
{
	struct cluster *file;
	dicomm_result_t status;

	*out = NULL;
	if (!*path && (!apart || ranks == 1))
		return DICOMM_SUCCESS;
	if (!*path)
		return assume(NULL, (uint32_t)ranks, (uint32_t)ranks, out);
	TRY(cluster_read(path, &file));
	status = cluster_plan(file, (uint32_t)ranks, out);
	cluster_free(file);
	return status;
}

/* ---- a new table ---- */

/* The text about uplinks, as far as there is room. */
struct words {
	char text[400];
	size_t n;
	bool cut;
};

static void add_uplink(struct words *w, const struct links_pipe *uplink)
{
	size_t room = sizeof(w->text) - w->n;

	w->cut |= room < 48;
	if (!w->cut)
		w->n += (size_t)snprintf(
			w->text + w->n, room, "%s %.3g up %.3g down",
			w->n ? "," : "", (double)uplink->up * 8e-9,
			(double)uplink->down * 8e-9);
}

static void tell(const struct dicomm_comm *comm, const struct links *l,
		 const char *how)
{
	struct words hosts = {.n = 0}, islands = {.n = 0};

	for (uint32_t k = 0; k < l->nodes; k++)
		add_uplink(&hosts, &links_node(l, k)->nic);
	log_info("%s: %s the uplinks of %u hosts (Gbit/s):%s%s", comm->name,
		 how, l->nodes, hosts.text, hosts.cut ? " ..." : "");
	for (uint32_t i = 0; i < l->islands; i++)
		add_uplink(&islands, &l->island[i]);
	if (l->islands > 1)
		log_info("%s: the hosts are in %u islands, with links of "
			 "(Gbit/s):%s%s",
			 comm->name, l->islands, islands.text,
			 islands.cut ? " ..." : "");
}

void topology_set(struct dicomm_comm *comm, struct links *links,
		  const char *how)
{
	if (comm->rank == 0)
		tell(comm, links, how);
	comm_set_links(comm, links);
}
