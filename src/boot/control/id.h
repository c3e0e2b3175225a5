/* SPDX-License-Identifier: BSD-3-Clause */
/* Unique ids: making and deriving them, and their text form
 * "dicomm1:ADDRESS:PORT:SECRET". */
#ifndef DICOMM_BOOT_ID_H
#define DICOMM_BOOT_ID_H

#include "dicomm.h"
#include "src/base/auth.h"
#include "src/boot/net/sock.h"

/*
 * Makes an id: listens on a port, with a new secret. The control thread of this
 * process serves the id until all ranks have joined or the bootstrap time-out
 * has passed. id_create_job() is for an id that may be that of a whole job,
 * which is asked at its port (job_port.h).
 */
dicomm_result_t id_create(dicomm_unique_id_t *id);
dicomm_result_t id_create_job(dicomm_unique_id_t *id);
/* Stops serving an id of this process at once, because no rank will use it. */
void id_forget(const dicomm_unique_id_t *id);
/* If this process serves the id, refuses ranks that connect, with the reason.
 * Waits until `come` ranks have been refused, because this process may end
 * soon, but less than a second. */
void id_refuse(const dicomm_unique_id_t *id, dicomm_result_t status,
	       const char *text, int come);
/* Derives an id of the same secret on all ranks. The secret is made of the port
 * of host:port (DICOMM_COMM_ID), other text that all ranks know ("" if there is
 * none), and a secret of the user (DICOMM_COMM_KEY). The host may be spelled in
 * different ways. Rank 0 listens at host:port and serves the id. A secret
 * that people chose takes tens of milliseconds (auth_key_from_secret()). */
dicomm_result_t id_derive(const char *host_port, const char *known,
			  const char *secret, int rank, dicomm_unique_id_t *id);

/* Returns the part of an id's text that is equal on all ranks; the address may
 * have different names on them. */
const char *id_secret(const dicomm_unique_id_t *id);

dicomm_result_t id_format(const char *address, const uint8_t key[AUTH_KEY],
			  dicomm_unique_id_t *id);
/* Finds the interface that leads to the address where ranks meet: `place` is
 * the text of an id, or host:port (DICOMM_COMM_ID). */
void id_learn_interface(const char *place);
/* Splits an id into address and key. Logs nothing. Returns false if this is not
 * an id, and sets *why. */
bool id_read(const dicomm_unique_id_t *id, char address[SOCK_NAME],
	     uint8_t key[AUTH_KEY], const char **why);
/* As id_read(), but logs the reason and returns DICOMM_ERR_INVALID_ARGUMENT. */
dicomm_result_t id_parse(const dicomm_unique_id_t *id, char address[SOCK_NAME],
			 uint8_t key[AUTH_KEY]);

#endif
