/* SPDX-License-Identifier: BSD-3-Clause */
/* Unique ids: format, parse, create, derive. */
#include <stdio.h>
#include <string.h>

#include <sodium.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/boot/control/id.h"
#include "src/boot/net/loop.h"
#include "src/boot/control/id_server.h"

#define PREFIX "dicomm1:"
#define VARIANT sodium_base64_VARIANT_URLSAFE_NO_PADDING
/* Ranks must learn of a failure within a second. */
#define TOLD_NS UINT64_C(800000000)
#define SECRET_MAX 255 /* most characters of DICOMM_COMM_KEY */
/* bytes of its text form, with the NUL */
#define SECRET sodium_base64_ENCODED_LEN(AUTH_KEY, VARIANT)

dicomm_result_t id_format(const char *address, const uint8_t key[AUTH_KEY],
			  dicomm_unique_id_t *id)
{
	char secret[SECRET];
	int n;

	sodium_bin2base64(secret, sizeof(secret), key, AUTH_KEY, VARIANT);
	memset(id, 0, sizeof(*id));
	n = snprintf(id->text, sizeof(id->text), PREFIX "%s:%s", address,
		     secret);
	sodium_memzero(secret, sizeof(secret));
	if (n >= (int)sizeof(id->text))
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "%s is too long for an id: use the address",
			    address);
	return DICOMM_SUCCESS;
}

bool id_read(const dicomm_unique_id_t *id, char address[SOCK_TEXT],
	     uint8_t key[AUTH_KEY], const char **why)
{
	const char *text = id->text, *colon;
	size_t n, secret_len;

	/* The reason must not contain the id: even a damaged one contains a
	 * secret. */
	*why = "this is not an id of dicomm_get_unique_id()";
	if (!memchr(text, '\0', sizeof(id->text)) ||
	    strncmp(text, PREFIX, strlen(PREFIX)))
		return false;
	*why = "this id is damaged: not dicomm1:ADDRESS:PORT:SECRET";
	text += strlen(PREFIX);
	colon = strrchr(text, ':');
	n = colon ? (size_t)(colon - text) : 0;
	if (!colon || n >= SOCK_TEXT ||
	    sodium_base642bin(key, AUTH_KEY, colon + 1, strlen(colon + 1), NULL,
			      &secret_len, NULL, VARIANT) ||
	    secret_len != AUTH_KEY)
		return false;
	memcpy(address, text, n);
	address[n] = '\0';
	return sock_is_host_port(address);
}

dicomm_result_t id_parse(const dicomm_unique_id_t *id, char address[SOCK_TEXT],
			 uint8_t key[AUTH_KEY])
{
	const char *why;

	if (id_read(id, address, key, &why))
		return DICOMM_SUCCESS;
	return FAIL(DICOMM_ERR_INVALID_ARGUMENT, "%s", why);
}

dicomm_result_t id_create(dicomm_unique_id_t *id)
{
	uint8_t key[AUTH_KEY];
	char address[SOCK_TEXT];
	dicomm_result_t status;
	dicomm_unique_id_t made;
	int fd;

	TRY(auth_init());
	TRY(loop_start());
	TRY(sock_listen(&fd, address));
	auth_random(key, sizeof(key));
	status = id_server_open(fd, key, address, NULL);
	if (status == DICOMM_SUCCESS)
		status = id_format(address, key, &made);
	auth_forget(key, sizeof(key));
	if (status == DICOMM_SUCCESS)
		*id = made;
	return status;
}

void id_forget(const dicomm_unique_id_t *id)
{
	uint8_t key[AUTH_KEY];
	char address[SOCK_TEXT];

	if (id_parse(id, address, key) == DICOMM_SUCCESS)
		id_server_close(address);
	auth_forget(key, sizeof(key));
}

void id_refuse(const dicomm_unique_id_t *id, dicomm_result_t status,
	       const char *text, int come)
{
	uint8_t key[AUTH_KEY];
	char address[SOCK_TEXT];
	const char *why;

	if (id_read(id, address, key, &why)) {
		id_server_refuse(address, status, text);
		id_server_flush(address, come, clock_ns() + TOLD_NS);
	}
	auth_forget(key, sizeof(key));
}

static dicomm_result_t serve_derived(const char *host_port,
				     const uint8_t key[AUTH_KEY])
{
	int fd;

	TRY(loop_start());
	/* The server of an earlier attempt of this process may hold the
	 * port. */
	id_server_close_failed(host_port);
	TRY(sock_listen_at(host_port, &fd));
	return id_server_open(fd, key, host_port, NULL);
}

dicomm_result_t id_derive(const char *host_port, const char *known,
			  const char *secret, int rank, dicomm_unique_id_t *id)
{
	char place[SOCK_TEXT + 256];
	uint8_t key[AUTH_KEY];
	dicomm_unique_id_t made;
	dicomm_result_t status;

	TRY(auth_init());
	TRY(sock_check(host_port));
	if (strlen(secret) > SECRET_MAX)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "DICOMM_COMM_KEY is longer than %d characters",
			    SECRET_MAX);
	if (!*secret && rank == 0)
		log_warn("DICOMM_COMM_KEY is not set: whoever reaches %s%s%s "
			 "can join",
			 host_port, *known ? " and guesses " : "", known);
	snprintf(place, sizeof(place), "%s %s", host_port, known);
	TRY(auth_key_from_secret(place, secret, key));
	status = id_format(host_port, key, &made);
	if (status == DICOMM_SUCCESS && rank == 0)
		status = serve_derived(host_port, key);
	auth_forget(key, sizeof(key));
	if (status == DICOMM_SUCCESS)
		*id = made;
	return status;
}
