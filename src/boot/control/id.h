/* SPDX-License-Identifier: BSD-3-Clause */
/* Unique ids: make one, derive one, and the text "dicomm1:ADDRESS:PORT:SECRET".
 */
#ifndef DICOMM_BOOT_ID_H
#define DICOMM_BOOT_ID_H

#include "dicomm.h"
#include "src/boot/net/auth.h"
#include "src/boot/net/sock.h"

/*
 * Make an id: listen on a port, with a fresh secret. The control thread of this
 * process serves the id until all ranks have come or the bootstrap time is
 * over.
 */
dicomm_result_t id_create(dicomm_unique_id_t *id);
/* Stop serving an id of this process at once, because nobody will come. */
void id_forget(const dicomm_unique_id_t *id);
/* Derive the same id on all ranks from host:port (DICOMM_COMM_ID), what else
 * all of them know ("" if nothing), and a secret (DICOMM_COMM_KEY). A secret
 * that people chose costs tens of milliseconds (auth_key_from_secret()). Rank 0
 * listens there and serves the id. */
dicomm_result_t id_derive(const char *host_port, const char *known,
			  const char *secret, int rank, dicomm_unique_id_t *id);

dicomm_result_t id_format(const char *address, const uint8_t key[AUTH_KEY],
			  dicomm_unique_id_t *id);
/* Logs nothing; false if it is not an id, and *why says so. */
bool id_read(const dicomm_unique_id_t *id, char address[SOCK_TEXT],
	     uint8_t key[AUTH_KEY], const char **why);
/* The same with a log line: ERR_INVALID_ARGUMENT if it is not an id. */
dicomm_result_t id_parse(const dicomm_unique_id_t *id, char address[SOCK_TEXT],
			 uint8_t key[AUTH_KEY]);

#endif
