/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parameters of the library. config_rows.h has a row for each DICOMM_
 * variable: its type, default and help. If the DICOMM_ variable is not set, the
 * NCCL_ variable of the same name counts where the flags of the row say so;
 * then a file (config_file.h). Variables are read once, at first use; those
 * that say which rank of which job this process is are read each time. For an
 * unknown DICOMM_ variable there is a warning that suggests the nearest name.
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
	CONFIG_KEYS
};

/* Each of these functions aborts if the key has another type, which is a bug in
 * this library. Any thread may call them. */
/* Returns "" if the variable is not set. The text stays valid if the variable
 * changes later. */
const char *config_string(enum config_key key);
/* Returns the text for messages, in which secrets are hidden. */
const char *config_shown(enum config_key key);
/* Returns a number, or a size in bytes. -1 means unset (RANK, SIZE) or auto
 * (SPIN). */
int64_t config_int(enum config_key key);
bool config_bool(enum config_key key);
bool config_is_default(enum config_key key);

/* Fails if a variable that protects the user, such as DICOMM_ENCRYPT, has a bad
 * value: its default would mean no protection. For other bad values there is a
 * warning, and the default is used. */
dicomm_result_t config_check(void);

/* Fills in row `index` of the table, for dicomm_param_info(). */
bool config_row(int index, dicomm_param_info_t *info);

/* The settings that all ranks must share: their hash, and their text to show a
 * difference ("DICOMM_ALGO=ring DICOMM_SHM_SLOTS=16"). */
uint64_t config_shared_hash(void);
void config_shared_text(char *text, size_t len);

#endif
