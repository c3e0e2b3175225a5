/* SPDX-License-Identifier: BSD-3-Clause */
/* The text of a unique id: "dicomm1:ADDRESS:PORT:SECRET". */
#ifndef DICOMM_BOOT_ID_H
#define DICOMM_BOOT_ID_H

#include "dicomm.h"
#include "src/boot/auth.h"
#include "src/boot/sock.h"

dicomm_result_t id_format(const char *address, const uint8_t key[AUTH_KEY],
			  dicomm_unique_id_t *id);
/* ERR_INVALID_ARGUMENT if it is none. */
dicomm_result_t id_parse(const dicomm_unique_id_t *id, char address[SOCK_TEXT],
			 uint8_t key[AUTH_KEY]);

#endif
