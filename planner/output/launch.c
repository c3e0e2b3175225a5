/* SPDX-License-Identifier: BSD-3-Clause */
/* Which host runs which ranks: hostfile, Slurm, Kubernetes. Idle ranks are run,
 * too, as trainers want all ranks of the cluster file. */
#include "planner/output/launch.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "planner/input/input.h"

#define PORT 29500 /* as torchrun has it */

/* Nodes of the cluster file that are one host, one after the other. */
struct host {
	const char *name; /* "": it has none */
	int len;          /* of the name */
	uint32_t first, ranks, nodes;
	const struct fleet_type *type;
	const char *resource; /* what a pod asks for; NULL: nothing */
};

/* NULL: nothing, as of cores. */
static const char *resource_of(const struct fleet_type *type)
{
	static const struct {
		const char *vendor, *resource;
	} known[] = {{"NVIDIA", "nvidia.com/gpu"},
		     {"AMD", "amd.com/gpu"},
		     {"Intel", "gpu.intel.com/i915"}};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(type->vendor, known[i].vendor))
			return known[i].resource;
	return NULL;
}

/* The host that begins with a node. */
static struct host host_at(const struct job *j, uint32_t node)
{
	const struct fleet *f = &j->fleet;
	struct host h = {.name = fleet_host(f, node),
			 .first = f->first[node],
			 .type = fleet_type(f, f->first[node])};

	h.resource = resource_of(h.type);
	h.len = (int)strcspn(h.name, "/");
	do {
		const struct fleet_kind *k = &f->kind[f->kind_of[node]];

		if (h.resource != resource_of(&f->type[k->type]))
			h.resource = NULL; /* of two vendors */
		h.ranks += k->ranks;
		h.nodes++;
		node++;
	} while (h.len && node < f->nodes &&
		 (int)strcspn(fleet_host(f, node), "/") == h.len &&
		 !memcmp(fleet_host(f, node), h.name, (size_t)h.len));
	return h;
}

/* Those that there are mean nothing to a shell, nor in YAML. */
static bool check_names(const char *format, const struct job *j)
{
	for (uint32_t n = 0; n < j->fleet.nodes; n++) {
		const char *name = fleet_host(&j->fleet, n);
		size_t len = strspn(name, "abcdefghijklmnopqrstuvwxyz"
					  "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
					  "0123456789._-");

		if (!*name ||
		    (len && *name != '-' && (!name[len] || name[len] == '/')))
			continue;
		input_complain("--export %s: %s: node %u: name: %s: wanted "
			       "letters, digits, \".\", \"_\" and \"-\", "
			       "which is not the first",
			       format, j->fleet.file, n, name);
		return false;
	}
	return true;
}

static bool have_names(const char *format, const struct job *j)
{
	for (uint32_t n = 0; n < j->fleet.nodes; n++) {
		if (*fleet_host(&j->fleet, n))
			continue;
		input_complain("--export %s: %s: node %u has no name: wanted "
			       "the name of its host in each entry of nodes",
			       format, j->fleet.file, n);
		return false;
	}
	return check_names(format, j);
}

bool launch_hostfile(FILE *out, const struct job *j)
{
	if (!have_names("hostfile", j))
		return false;
	fprintf(out,
		"# mpirun --hostfile THIS --map-by slot -np %u PROGRAM: ranks "
		"as in the plan\n",
		j->fleet.ranks);
	for (uint32_t n = 0; n < j->fleet.nodes;) {
		struct host h = host_at(j, n);

		fprintf(out, "%.*s slots=%u\n", h.len, h.name, h.ranks);
		n += h.nodes;
	}
	return true;
}

static uint32_t count_hosts(const struct job *j)
{
	uint32_t hosts = 0;

	for (uint32_t n = 0; n < j->fleet.nodes; hosts++)
		n += host_at(j, n).nodes;
	return hosts;
}

bool launch_slurm(FILE *out, const struct job *j)
{
	struct host h;
	uint32_t n;

	if (!have_names("slurm", j))
		return false;
	fprintf(out,
		"#!/bin/sh\n# sbatch THIS PROGRAM [ARGUMENTS]: ranks as in the "
		"plan of dicomm-plan\n#SBATCH --nodes=%u\n#SBATCH "
		"--ntasks=%u\n#SBATCH --exclusive\n#SBATCH --nodelist=",
		count_hosts(j), j->fleet.ranks);
	for (n = 0; n < j->fleet.nodes; n += h.nodes) {
		h = host_at(j, n);
		fprintf(out, "%s%.*s", n ? "," : "", h.len, h.name);
	}
	/* One line for each rank: what --distribution=arbitrary reads. */
	fprintf(out, "\nSLURM_HOSTFILE=$(mktemp) || exit\nexport "
		     "SLURM_HOSTFILE\ntrap 'rm -f \"$SLURM_HOSTFILE\"' "
		     "EXIT\ncat >\"$SLURM_HOSTFILE\" <<'EOF'\n");
	for (n = 0; n < j->fleet.nodes; n += h.nodes) {
		h = host_at(j, n);
		for (uint32_t r = 0; r < h.ranks; r++)
			fprintf(out, "%.*s\n", h.len, h.name);
	}
	h = host_at(j, 0);
	fprintf(out,
		"EOF\nMASTER_ADDR=%.*s MASTER_PORT=%d\nexport MASTER_ADDR "
		"MASTER_PORT\nsrun --distribution=arbitrary --ntasks=%u "
		"--kill-on-bad-exit \\\n\tsh -c 'RANK=$SLURM_PROCID "
		"WORLD_SIZE=$SLURM_NTASKS \\\n\tLOCAL_RANK=$SLURM_LOCALID "
		"exec \"$@\"' sh \"$@\"\n",
		h.len, h.name, PORT, j->fleet.ranks);
	return true;
}

/* ---- Kubernetes ---- */

/* As a label has it: letters, digits, "-", "_" and ".", of which the first and
 * the last are letters or digits. */
static void print_label(FILE *out, const char *text)
{
	size_t len = strlen(text);

	while (len && !isalnum((unsigned char)text[len - 1]))
		len--;
	while (len && !isalnum((unsigned char)*text)) {
		text++;
		len--;
	}
	for (; len; text++, len--)
		fputc(isalnum((unsigned char)*text) || strchr("-_.", *text)
			      ? *text
			      : '-',
		      out);
}

static void print_selector(FILE *out, const struct host *h)
{
	fprintf(out, "            nodeSelector:\n");
	if (h->len) {
		fprintf(out, "              kubernetes.io/hostname: \"%.*s\"\n",
			h->len, h->name);
		return;
	}
	fprintf(out, "              dicomm/device: \"");
	print_label(out, h->type->name);
	fprintf(out, "\"\n");
}

/* So many hosts that are alike, the first of which is number `at`. */
static void print_hosts(FILE *out, const struct host *h, uint32_t at,
			uint32_t count, uint32_t hosts)
{
	fprintf(out,
		"  - name: from-%u\n    replicas: 1\n    template:\n      "
		"spec:\n        parallelism: %u\n        completions: %u\n     "
		"   completionMode: Indexed\n        backoffLimit: 0\n        "
		"template:\n          spec:\n            restartPolicy: "
		"Never\n",
		at, count, count);
	print_selector(out, h);
	fprintf(out,
		"            containers:\n            - name: ranks\n"
		"              image: $IMAGE\n"
		"              command: [sh, -c]\n              args:\n"
		"              - exec torchrun --nnodes %u --node-rank $((%u + "
		"JOB_COMPLETION_INDEX)) --nproc-per-node %u --master-addr "
		"dicomm-plan-from-0-0-0.dicomm-plan --master-port %d "
		"$PROGRAM /etc/dicomm/plan.json\n",
		hosts, at, h->ranks, PORT);
	if (h->resource)
		fprintf(out,
			"              resources:\n                limits:\n"
			"                  %s: %u\n",
			h->resource, h->ranks);
	fprintf(out, "              volumeMounts:\n"
		     "              - name: plan\n"
		     "                mountPath: /etc/dicomm\n"
		     "            volumes:\n            - name: plan\n"
		     "              configMap:\n"
		     "                name: dicomm-plan\n");
}

/* Nodes without a name that follow each other and are of one kind. */
static uint32_t count_alike(const struct job *j, uint32_t node)
{
	const struct fleet *f = &j->fleet;
	uint32_t n = 1;

	while (!*fleet_host(f, node) && node + n < f->nodes &&
	       !*fleet_host(f, node + n) &&
	       f->kind_of[node + n] == f->kind_of[node])
		n++;
	return n;
}

static bool print_config(FILE *out, const struct plan *p)
{
	json_t *plan = plan_json(p);
	char *text = json_dumps(plan, JSON_COMPACT | JSON_REAL_PRECISION(12));

	json_decref(plan);
	if (!text)
		return false;
	fprintf(out,
		"apiVersion: v1\nkind: ConfigMap\nmetadata:\n"
		"  name: dicomm-plan\ndata:\n  plan.json: |\n    %s\n---\n",
		text);
	free(text);
	return true;
}

bool launch_jobset(FILE *out, const struct job *j, const struct plan *p)
{
	uint32_t hosts = count_hosts(j), at = 0;

	if (!check_names("jobset", j))
		return false;
	fprintf(out, "# IMAGE=... PROGRAM=train.py envsubst '$IMAGE $PROGRAM' "
		     "<THIS | kubectl apply -f -\n");
	if (!print_config(out, p)) {
		input_complain("--export jobset: out of memory");
		return false;
	}
	fprintf(out, "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\n"
		     "metadata:\n  name: dicomm-plan\nspec:\n"
		     "  failurePolicy:\n    maxRestarts: 0\n"
		     "  replicatedJobs:\n");
	for (uint32_t n = 0; n < j->fleet.nodes;) {
		struct host h = host_at(j, n);
		uint32_t count = count_alike(j, n);

		print_hosts(out, &h, at, count, hosts);
		at += count;
		n += count > 1 ? count : h.nodes;
	}
	return true;
}
