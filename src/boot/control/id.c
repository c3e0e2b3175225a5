/* SPDX-License-Identifier: BSD-3-Clause */
/* Unique ids: format, parse, create, derive. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/base/fork.h"
#include "src/base/log.h"
#include "src/boot/control/id.h"
#include "src/boot/net/loop.h"
#include "src/boot/control/id_server.h"
#include "src/boot/control/job_port.h"

#define PREFIX "dicomm1:"
#define VARIANT sodium_base64_VARIANT_URLSAFE_NO_PADDING
/* Ranks must learn of a failure within a second. */
#define TOLD_NS UINT64_C(800000000)
#define SECOND_NS UINT64_C(1000000000)
#define SECRET_MAX 255 /* most characters of DICOMM_COMM_KEY */
/* bytes of its text form, with the NUL */
#define SECRET sodium_base64_ENCODED_LEN(AUTH_KEY, VARIANT)
#define MARK 18 /* bytes of "~0123456789abcdef", with the NUL */

/* ---- names that are longer than an id has room for ---- */

/* An id has a hash of such a name. Each rank derives the id in its own process,
 * from the name, and looks it up there. */
struct long_name {
	struct long_name *next;
	char mark[MARK];
	char address[];
};

static struct long_name *names; /* for the life of the process */

/* "~" is in no name of a host. */
static void mark_of(const char *address, char mark[MARK])
{
	uint8_t hash[8];

	crypto_generichash(hash, sizeof(hash), (const uint8_t *)address,
			   strlen(address), NULL, 0);
	mark[0] = '~';
	sodium_bin2hex(mark + 1, MARK - 1, hash, sizeof(hash));
}

static const char *name_find(const char *mark)
{
	const struct long_name *n;

	fork_lock(FORK_ID_NAMES);
	for (n = names; n && strcmp(n->mark, mark); n = n->next)
		;
	fork_unlock(FORK_ID_NAMES);
	return n ? n->address : NULL;
}

static dicomm_result_t name_keep(const char *address, char mark[MARK])
{
	size_t len = strlen(address) + 1;
	struct long_name *n;

	mark_of(address, mark);
	if (name_find(mark))
		return DICOMM_SUCCESS;
	n = malloc(sizeof(*n) + len);
	if (!n)
		return FAIL(DICOMM_ERR_NO_MEMORY, "id: out of memory");
	memcpy(n->mark, mark, MARK);
	memcpy(n->address, address, len);
	fork_lock(FORK_ID_NAMES);
	n->next = names;
	names = n;
	fork_unlock(FORK_ID_NAMES);
	return DICOMM_SUCCESS;
}

/* ---- text ---- */

dicomm_result_t id_format(const char *address, const uint8_t key[AUTH_KEY],
			  dicomm_unique_id_t *id)
{
	char secret[SECRET], mark[MARK];

	if (strlen(PREFIX) + strlen(address) + SECRET >= sizeof(id->text)) {
		TRY(name_keep(address, mark));
		address = mark;
	}
	sodium_bin2base64(secret, sizeof(secret), key, AUTH_KEY, VARIANT);
	memset(id, 0, sizeof(*id));
	snprintf(id->text, sizeof(id->text), PREFIX "%s:%s", address, secret);
	sodium_memzero(secret, sizeof(secret));
	return DICOMM_SUCCESS;
}

bool id_read(const dicomm_unique_id_t *id, char address[SOCK_NAME],
	     uint8_t key[AUTH_KEY], const char **why)
{
	const char *text = id->text, *colon, *full;
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
	if (!colon || n >= SOCK_NAME ||
	    sodium_base642bin(key, AUTH_KEY, colon + 1, strlen(colon + 1), NULL,
			      &secret_len, NULL, VARIANT) ||
	    secret_len != AUTH_KEY)
		return false;
	memcpy(address, text, n);
	address[n] = '\0';
	if (*address != '~')
		return sock_is_host_port(address);
	*why = "this id is of a name of more than 70 characters, and was made "
	       "in another process: each rank has to make it by itself";
	full = name_find(address);
	if (full)
		snprintf(address, SOCK_NAME, "%s", full);
	return full;
}

dicomm_result_t id_parse(const dicomm_unique_id_t *id, char address[SOCK_NAME],
			 uint8_t key[AUTH_KEY])
{
	const char *why;

	if (id_read(id, address, key, &why))
		return DICOMM_SUCCESS;
	return FAIL(DICOMM_ERR_INVALID_ARGUMENT, "%s", why);
}

/* Lets who has the secret ask at the server. Without memory for the key nobody
 * can, which is no failure of the id. */
static void let_ask(const char *address, const char *secret)
{
	uint8_t key[AUTH_KEY];

	log_demote(true);
	if (job_port_key(address, secret, key) == DICOMM_SUCCESS)
		id_server_let_ask(address, key);
	log_demote(false);
	auth_forget(key, sizeof(key));
}

static dicomm_result_t create(dicomm_unique_id_t *id, bool asked)
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
	if (status == DICOMM_SUCCESS && asked)
		let_ask(address, config_string(CONFIG_COMM_KEY));
	if (status == DICOMM_SUCCESS)
		*id = made;
	return status;
}

dicomm_result_t id_create(dicomm_unique_id_t *id)
{
	return create(id, false);
}

dicomm_result_t id_create_job(dicomm_unique_id_t *id)
{
	bool open;

	loop_lock();
	open = job_port_address();
	loop_unlock();
	return create(id, !open && job_port_is_wanted());
}

const char *id_secret(const dicomm_unique_id_t *id)
{
	const char *colon = strrchr(id->text, ':');

	return colon ? colon + 1 : id->text;
}

void id_forget(const dicomm_unique_id_t *id)
{
	uint8_t key[AUTH_KEY];
	char address[SOCK_NAME];

	if (id_parse(id, address, key) == DICOMM_SUCCESS)
		id_server_close(address);
	auth_forget(key, sizeof(key));
}

void id_refuse(const dicomm_unique_id_t *id, dicomm_result_t status,
	       const char *text, int come)
{
	uint8_t key[AUTH_KEY];
	char address[SOCK_NAME];
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
	unsigned port = (unsigned)atoi(strrchr(host_port, ':') + 1);
	uint64_t until_ns = clock_ns();
	bool mine;
	int fd;

	TRY(loop_start());
	/* The server of an earlier attempt of this process may hold the
	 * port. */
	id_server_close_failed(host_port);
	loop_lock();
	job_port_give_back(port);
	mine = id_server_is_open(host_port);
	loop_unlock();
	/* What another process has, it may give back. */
	if (!mine)
		until_ns += (uint64_t)config_int(CONFIG_BOOTSTRAP_TIMEOUT) *
			    SECOND_NS;
	TRY(sock_listen_at(host_port, until_ns, &fd));
	return id_server_open(fd, key, host_port, NULL);
}

/* Serves the id on rank 0. */
static dicomm_result_t serve_id(const char *host_port, const char *known,
				const char *secret, const uint8_t key[AUTH_KEY])
{
	TRY(serve_derived(host_port, key));
	if (!*secret || !job_port_is_wanted())
		return DICOMM_SUCCESS;
	/* It would be the same key (job_port_key()). */
	if (!*known)
		id_server_let_ask(host_port, key);
	else
		let_ask(host_port, secret);
	return DICOMM_SUCCESS;
}

dicomm_result_t id_derive(const char *host_port, const char *known,
			  const char *secret, int rank, dicomm_unique_id_t *id)
{
	char place[256];
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
		log_warn("DICOMM_COMM_KEY is not set: any process that reaches "
			 "%s%s%s can join",
			 host_port, *known ? " and guesses " : "", known);
	/* Not the host: ranks may know it by different names. */
	snprintf(place, sizeof(place), "%s %s", strrchr(host_port, ':'), known);
	TRY(auth_key_from_secret(place, secret, key));
	status = id_format(host_port, key, &made);
	if (status == DICOMM_SUCCESS && rank == 0)
		status = serve_id(host_port, known, secret, key);
	auth_forget(key, sizeof(key));
	if (status == DICOMM_SUCCESS)
		*id = made;
	return status;
}

void id_learn_interface(const char *place)
{
	dicomm_unique_id_t id = {.text = ""};
	char address[SOCK_NAME];
	uint8_t key[AUTH_KEY];
	struct sock_address to;
	const char *why;

	if (strlen(place) < sizeof(id.text))
		memcpy(id.text, place, strlen(place));
	if (id_read(&id, address, key, &why))
		place = address;
	auth_forget(key, sizeof(key));
	auth_forget(&id, sizeof(id));
	if (sock_resolve(place, &to, &why))
		interface_learn_toward(&to);
}
