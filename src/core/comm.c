/* SPDX-License-Identifier: BSD-3-Clause */
/* The handle and the settings of a communicator. */
#include "src/core/comm.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/config.h"
#include "src/base/log.h"
#include "src/topo/pci_distance.h"

/* ---- handles ---- */

/* Generation of the process; a child of fork() begins the next one. */
_Atomic int comm_generation;
dicomm_result_t comm_check_handle(struct dicomm_comm *comm,
				  const char *function)
{
	if (!comm)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT, "%s: comm is NULL",
			    function);
	if (comm->magic != COMM_MAGIC)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "%s: comm %p is not a communicator", function,
			    (void *)comm);
	if (comm->generation != atomic_load(&comm_generation))
		return FAIL(DICOMM_ERR_INVALID_USAGE,
			    "%s: comm belongs to the parent of this process",
			    function);
	return DICOMM_SUCCESS;
}

/* ---- settings ---- */

void comm_listen(const struct dicomm_comm *comm)
{
	if (comm)
		log_set_sink(comm->config.log_fn, comm->config.log_ctx);
	else
		log_set_sink(NULL, NULL);
}

dicomm_result_t comm_refused(const struct dicomm_comm *comm,
			     dicomm_result_t status)
{
	if (!comm || comm->magic != COMM_MAGIC || fault_is(comm))
		return status;
	comm_listen(comm);
	log_repeat();
	comm_listen(NULL);
	return status;
}

/* The largest config of any later version, in bytes. */
#define CONFIG_BYTES_MAX 4096
#define CONFIG_STRINGS 5
static void list_strings(dicomm_config_t *c, const char **list[CONFIG_STRINGS])
{
	list[0] = &c->device;
	list[1] = &c->name;
	list[2] = &c->transports;
	list[3] = &c->staging;
	list[4] = &c->island;
}

void comm_config_free(dicomm_config_t *config)
{
	const char **strings[CONFIG_STRINGS];

	list_strings(config, strings);
	for (int i = 0; i < CONFIG_STRINGS; i++) {
		free((char *)(uintptr_t)*strings[i]);
		*strings[i] = NULL;
	}
}

dicomm_result_t comm_config_copy(dicomm_config_t *to,
				 const dicomm_config_t *from)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	const char **strings[CONFIG_STRINGS], *given[CONFIG_STRINGS];

	if (from) {
		if (from->magic != DICOMM_CONFIG_MAGIC ||
		    from->size < offsetof(dicomm_config_t, version) +
					 sizeof(from->version))
			return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
				    "config: not initialised by "
				    "DICOMM_CONFIG_INITIALIZER (magic %#x, "
				    "size %zu)",
				    from->magic, from->size);
		if (from->size > CONFIG_BYTES_MAX)
			return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
				    "config: size %zu: no version of this "
				    "library has a config of more than %d "
				    "bytes",
				    from->size, CONFIG_BYTES_MAX);
		memcpy(&config, from,
		       from->size < sizeof(config) ? from->size
						   : sizeof(config));
	}
	list_strings(&config, strings);
	for (int i = 0; i < CONFIG_STRINGS; i++) {
		given[i] = *strings[i];
		*strings[i] = NULL;
	}
	for (int i = 0; i < CONFIG_STRINGS; i++) {
		if (!given[i])
			continue;
		*strings[i] = strdup(given[i]);
		if (!*strings[i]) {
			comm_config_free(&config);
			return FAIL(DICOMM_ERR_NO_MEMORY,
				    "config: out of memory");
		}
	}
	*to = config;
	return DICOMM_SUCCESS;
}

bool comm_never_stages(const struct dicomm_comm *comm)
{
	const char *staging = comm->config.staging;

	return !strcmp(staging ? staging : config_string(CONFIG_STAGING),
		       "never");
}

void comm_place(const struct accel *accel, int index, struct tp_place *place)
{
	dicomm_device_info_t info = {.pci = ""};

	*place = (struct tp_place){.steps = pci_distance_steps};
	if (accel->work && accel->describe(index, &info) == DICOMM_SUCCESS)
		memcpy(place->pci, info.pci, sizeof(place->pci));
}

void comm_set_links(struct dicomm_comm *comm, struct links *links)
{
	pthread_mutex_lock(&comm->links_lock);
	links_free(comm->links);
	comm->links = links;
	pthread_mutex_unlock(&comm->links_lock);
	/* Prepared calls of the old epoch are no longer found. */
	comm->links_epoch++;
	memset(comm->prepared.cache, 0, sizeof(comm->prepared.cache));
}

/* The thread in the data path may add to the counters meanwhile, by plain
 * stores. They are whole words, so none is torn. */
__attribute__((no_sanitize("thread"))) void
comm_counters(const struct dicomm_comm *comm, dicomm_stats_t *counters)
{
	const volatile uint64_t *from = (const void *)&comm->stats;
	uint64_t *to = (void *)counters;

	_Static_assert(sizeof(*counters) % sizeof(*to) == 0, "words alone");
	for (size_t i = 0; i < sizeof(*counters) / sizeof(*to); i++)
		to[i] = from[i];
}

/* ---- transports ---- */

const char *comm_transports(const struct dicomm_comm *comm)
{
	return comm->config.transports ? comm->config.transports
				       : config_string(CONFIG_TRANSPORTS);
}

bool comm_list_has(const char *list, const struct transport *t)
{
	bool exclude = *list == '^', found = false;
	const char *name = t->name;
	size_t n = strlen(name);

	if (t->by_name && (!*list || exclude))
		return false;
	if (!*list)
		return true;
	for (const char *p = list + exclude; *p;) {
		size_t len = strcspn(p, ",");

		found |= len == n && !strncmp(p, name, n);
		p += len + (p[len] == ',');
	}
	return found != exclude;
}

bool comm_lists(const struct dicomm_comm *comm, const char *transport)
{
	return comm_list_has(comm_transports(comm), transport_find(transport));
}

uint32_t comm_wished_slot_bytes(const struct transport *t, int ranks)
{
	return (ranks <= COMM_WIDE_RANKS || t->by_reference) &&
			       config_is_default(CONFIG_SHM_SLOT_BYTES)
		       ? t->slot_bytes
		       : 0;
}

void comm_size_slots(const struct dicomm_comm *comm, const struct transport *t,
		     struct tp_config *config)
{
	uint32_t wished = t->set_slot_bytes
				  ? comm->local_slot_bytes
				  : comm_wished_slot_bytes(t, comm->ranks);

	config->slots = comm->slots;
	if (t->slots && config_is_default(CONFIG_SHM_SLOTS))
		config->slots = t->slots;
	config->slot_bytes = wished ? wished : comm->slot_bytes;
}

uint32_t comm_most_slot_bytes(const struct dicomm_comm *comm)
{
	uint32_t most = comm->slot_bytes;
	struct tp_config config;

	for (size_t i = 0; transports[i]; i++) {
		comm_size_slots(comm, transports[i], &config);
		if (config.slot_bytes > most)
			most = config.slot_bytes;
	}
	return most;
}

/* ---- operators ---- */

struct created_op *comm_created_op(struct dicomm_comm *comm, dicomm_redop_t op)
{
	struct created_op *c = &comm->ops[((unsigned)op - 0x100) % COMM_OPS];

	return op >= 0x100 && c->used && c->op == op ? c : NULL;
}
