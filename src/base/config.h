/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parameters of the library. config.c has one table with a row for each
 * DICOMM_ variable: its type, default and help. A row may name an NCCL variable
 * that counts if the DICOMM_ variable is not set. Variables are read once, at
 * first use, but those that say who this process is in its next job each time.
 * For an unknown DICOMM_ variable there is a warning that suggests the nearest
 * name.
 */
#ifndef DICOMM_BASE_CONFIG_H
#define DICOMM_BASE_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "dicomm.h"

enum config_key {
#define ROW(name, ...) CONFIG_##name,
#include "src/base/config_rows.h"
#undef ROW
	CONFIG_NCCL_VERSION,
	CONFIG_PORT_RANGE, /* "first-last" */
	CONFIG_PROBE,
	CONFIG_RANK,
	CONFIG_SHM_CMA,           /* auto, on, off */
	CONFIG_SHM_CMA_THRESHOLD, /* bytes */
	CONFIG_SHM_MAP_THRESHOLD, /* bytes */
	CONFIG_SHM_SLOT_BYTES,
	CONFIG_SHM_SLOTS,
	CONFIG_SIZE,
	CONFIG_SOCKET_FAMILY, /* AF_INET, AF_INET6 */
	CONFIG_SOCKET_IFNAME,
	CONFIG_SPIN, /* number of polls before yielding; -1: auto */
	CONFIG_STAGING,
	CONFIG_TCP_CONNECTIONS,
	CONFIG_TCP_SILENT_MS, /* 0: never */
	CONFIG_TIMEOUT_MS,
	CONFIG_TOPO_FILE,
	CONFIG_TRANSPORTS,
	CONFIG_WARN_LATE_MS,
	CONFIG_KEYS
};

/* Each of these functions aborts if the key has another type, which is a bug in
 * this library. Any thread may call them. */
/* Returns "" if the variable is not set. The text stays, also if the variable
 * changes. */
const char *config_string(enum config_key key);
/* Returns the text for messages, in which secrets are hidden. */
const char *config_shown(enum config_key key);
/* Returns a number, or a size in bytes. -1 means unset (RANK, SIZE) or auto
 * (SPIN). */
int64_t config_int(enum config_key key);
bool config_bool(enum config_key key);
bool config_is_default(enum config_key key);

/* Refuses a bad value of a variable that protects, as DICOMM_ENCRYPT: to go on
 * with the default would be to go without. Other bad values are only warned of.
 */
dicomm_result_t config_check(void);

/* Fills in row `index` of the table, for dicomm_param_info(). */
bool config_row(int index, dicomm_param_info_t *info);

/* The settings that all ranks must share: their hash, and their text to show a
 * difference ("DICOMM_ALGO=ring DICOMM_SHM_SLOTS=16"). */
uint64_t config_shared_hash(void);
void config_shared_text(char *text, size_t len);

#endif
