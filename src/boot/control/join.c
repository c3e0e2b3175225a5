/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How one rank joins. It sends a join request to the id server and waits until
 * all ranks have done so. If the id server and rank 0 are in one process, as
 * they usually are, the hub takes over the connection there. Otherwise the rank
 * connects to rank 0's hub and waits there until all ranks are connected. Only
 * then does it close the connection to the id server: until all are connected
 * to the hub, only the id server notices a rank that dies in between.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/boot/control/delta.h"
#include "src/boot/control/id.h"
#include "src/boot/control/join.h"
#include "src/boot/control/id_server.h"
#include "src/boot/control/recovery.h"
#include "src/boot/net/interface.h"

#define MS_NS UINT64_C(1000000)
#define FOREVER_NS (1ull << 62)
/* How long to wait for the id server to say what went wrong. Ranks must learn
 * of a failure within a second. */
#define WHY_NS (800 * MS_NS)
/* time for the id server's frames to reach the kernel */
#define FLUSH_NS (100 * MS_NS)
/* time for a rank that failed to tell the others why */
#define TELL_NS (5000 * MS_NS)
/* bytes of the reason why rank 0 has no hub, with the NUL */
#define REASON_TEXT 256

/* A rank that waits says so after this time, and again after each such time. */
#define SAY_NS (10000 * MS_NS)
#define SAYERS 3
/* Without a bound for ranks to come, an address where nobody listens is tried
 * for this long: the process that made the id may be dead. */
#define REACH_NS (600000 * MS_NS)

struct join {
	const struct control_config *config;
	uint64_t until_ns;
	uint64_t begin_ns, say_ns; /* say_ns: when to say next who is missing */
	bool says;                 /* has asked for that */
	struct rank_info info;
	char server_address[SOCK_NAME]; /* from the id; "" if there is no id */
	char hub_address[SOCK_TEXT];
	uint8_t hub_key[AUTH_KEY];
	struct client *server, *client;
	struct hub *hub;
	char (*where)[RANK_INFO_WHERE];
	bool named; /* `where` has all ranks */
	struct relay_place place;
	char missing[FRAME_TEXT];
};

/* What rank 0 passes to the others through the caller's all-gather. */
struct invitation {
	char magic[8];
	/* "" if there is no hub; reason and status say why */
	char address[SOCK_TEXT];
	char reason[REASON_TEXT];
	uint32_t status;
	uint8_t key[AUTH_KEY];
	dicomm_unique_id_t secret;
};

static const char invitation_magic[8] = "dicomm2";

static struct client_patience patience(const struct join *j, bool until_listens)
{
	uint64_t until_ns = j->until_ns, reach_ns = clock_ns() + REACH_NS;

	if (j->config->timeout_ms == INT32_MAX && until_ns > reach_ns)
		until_ns = reach_ns;
	return (struct client_patience){.until_ns = until_ns,
					.cancelled = j->config->cancelled,
					.until_it_listens = until_listens};
}

/* The first of those that are there, by the text about those that are not:
 * "rank 0", "ranks 0-3, 7". */
static int first_present(const char *missing)
{
	int first, last;

	switch (sscanf(missing, "%*[ranks] %d-%d", &first, &last)) {
	case 2:
		return first == 0 ? last + 1 : 0;
	case 1:
		return first == 0 ? 1 : 0;
	default:
		return -1;
	}
}

/* One rank says it for all. */
static void say_missing(struct join *j)
{
	j->says = false;
	if (first_present(j->missing) == j->config->rank)
		log_warn("rank %d of %d waits for %s, since %d s",
			 j->config->rank, j->config->ranks, j->missing,
			 (int)((clock_ns() - j->begin_ns) / (1000 * MS_NS)));
}

static uint64_t next_ask(const struct join *j)
{
	uint64_t ask_ns = client_next_ask(j->until_ns);

	return ask_ns < j->say_ns ? ask_ns : j->say_ns;
}

static void ask_who(struct client *c)
{
	struct frame_writer out;

	frame_begin(&out, FRAME_ASK_MISSING);
	frame_put_u64(&out, 0);
	client_send(c, &out);
}

static dicomm_result_t fail_timeout(const struct join *j)
{
	const struct control_config *c = j->config;
	char from[96] = "";

	if (c->ranks_from)
		snprintf(from, sizeof(from), " (%.60s says that there are %d)",
			 c->ranks_from, c->ranks);
	if (j->missing[0])
		return FAIL(DICOMM_ERR_TIMEOUT,
			    "%s of %d did not come within %d ms%s", j->missing,
			    c->ranks, c->timeout_ms, from);
	return FAIL(DICOMM_ERR_TIMEOUT,
		    "the %d ranks did not join within %d ms, and %s "
		    "has not reported which ranks are missing%s",
		    c->ranks, c->timeout_ms,
		    j->client ? j->client->conn.remote : j->server->conn.remote,
		    from);
}

/* The other end closed the connection. Logs the reason that it gave. */
static dicomm_result_t fail_said(enum frame_type type, struct frame_reader *in)
{
	dicomm_result_t status = frame_status(frame_get_u32(in));
	char text[FRAME_TEXT];

	if (type == FRAME_FAILED)
		frame_get_u32(in);
	frame_get_text(in, text, sizeof(text));
	return FAIL(status, "%s", text);
}

static dicomm_result_t fail_lost(const struct join *j, struct client *from,
				 const char *why)
{
	if (from == j->server)
		return FAIL(DICOMM_ERR_REMOTE,
			    "lost rank 0, or the process that made the id, at "
			    "%s: %s",
			    from->conn.remote, why);
	return FAIL(DICOMM_ERR_REMOTE,
		    "lost rank 0, at %s, before all had come: %s",
		    from->conn.remote, why);
}

/* Rank 0 is gone, perhaps because another rank died first. Returns true if the
 * id server is still there and says which rank that was. */
static bool server_knows(struct join *j, enum frame_type *type,
			 struct frame_reader *in)
{
	uint64_t until_ns = clock_ns() + WHY_NS;
	struct client *from;
	char why[FRAME_TEXT];

	if (until_ns > j->until_ns)
		until_ns = j->until_ns;
	while (j->server &&
	       client_next(j->server, NULL, until_ns, j->config->cancelled,
			   &from, type, in, why) == DICOMM_SUCCESS)
		if (*type == FRAME_FAILED)
			return true;
	return false;
}

/* Waits for the next frame of c. */
static dicomm_result_t expect(struct join *j, struct client *c,
			      enum frame_type *type, struct frame_reader *in)
{
	uint64_t ask_ns = next_ask(j);
	struct client *from;
	dicomm_result_t status;
	char why[FRAME_TEXT];

	for (;;) {
		status = client_next(c, j->server == c ? NULL : j->server,
				     ask_ns, j->config->cancelled, &from, type,
				     in, why);
		if (status == DICOMM_ERR_TIMEOUT && clock_ns() < j->until_ns) {
			ask_who(c);
			if (clock_ns() >= j->say_ns) {
				j->says = true;
				j->say_ns += SAY_NS;
			}
			ask_ns = next_ask(j);
		} else if (status == DICOMM_ERR_TIMEOUT) {
			return fail_timeout(j);
		} else if (status == DICOMM_ERR_ABORTED) {
			return FAIL(status, "aborted while the ranks "
					    "joined");
		} else if (status != DICOMM_SUCCESS && from == c) {
			if (c == j->client && server_knows(j, type, in))
				return fail_said(*type, in);
			return fail_lost(j, from, why);
		} else if (status != DICOMM_SUCCESS) {
			/* The process that made the id may end early. */
			client_close(j->server);
			j->server = NULL;
		} else if (*type == FRAME_FAILED || *type == FRAME_REFUSED) {
			return fail_said(*type, in);
		} else if (*type == FRAME_MISSING) {
			frame_get_u64(in);
			frame_get_text(in, j->missing, sizeof(j->missing));
			if (j->says)
				say_missing(j);
		} else if (from == c) {
			return DICOMM_SUCCESS;
		}
	}
}

static dicomm_result_t fail_connect(const struct join *j, const char *to,
				    const char *address, dicomm_result_t status,
				    const char *why)
{
	const char *hint = "";

	if (sock_is_loopback(address) &&
	    (status == DICOMM_ERR_REMOTE || status == DICOMM_ERR_TIMEOUT))
		hint = " (has rank 0, or who made the id, started? Only ranks "
		       "of its own host reach a loopback address: if others "
		       "are to, is DICOMM_SOCKET_IFNAME right there?)";
	else if (status == DICOMM_ERR_TIMEOUT)
		hint = " (has rank 0, or who made the id, started?)";
	else if (status == DICOMM_ERR_REMOTE)
		hint = " (is DICOMM_SOCKET_IFNAME right on that host?)";
	if (status == DICOMM_ERR_TIMEOUT)
		return FAIL(status,
			    "cannot reach %s at %s within %d ms: "
			    "%.800s%s",
			    to, address, j->config->timeout_ms, why, hint);
	return FAIL(status, "%s at %s: %.800s%s", to, address, why, hint);
}

/* `nonce` is for the id server, NULL for the hub. */
static void send_join_request(struct join *j, struct client *c,
			      const uint8_t *nonce)
{
	struct frame_writer out;

	frame_begin(&out, FRAME_JOIN);
	rank_info_put(&out, &j->info);
	if (nonce) {
		frame_put_text(&out, j->hub_address);
		frame_put_bytes(&out, nonce, AUTH_NONCE);
	}
	client_send(c, &out);
}

static dicomm_result_t fail_host(struct join *j, dicomm_result_t status)
{
	char why[FRAME_TEXT];

	j->hub_address[0] = '\0';
	snprintf(why, sizeof(why), "%s", log_last_error());
	return FAIL(status, "rank 0 cannot host the others: %.800s", why);
}

/* Opens the hub; on rank 0 only. */
static dicomm_result_t make_hub(struct join *j)
{
	dicomm_result_t status =
		hub_open(&j->info, j->hub_key, j->hub_address, &j->hub);

	if (status == DICOMM_SUCCESS)
		return status;
	return fail_host(j, status);
}

/* Opens the hub on rank 0, if possible in the place of the id server. If that
 * is of this process and refuses, it has told the others: *told. */
static dicomm_result_t make_hub_by_id(struct join *j, bool *told)
{
	struct hub *hub;
	dicomm_result_t status = hub_open_idle(&hub);
	bool given;

	*told = false;
	if (status != DICOMM_SUCCESS)
		return fail_host(j, status);
	status = id_server_give_hub(j->server_address, &j->info, hub, &given);
	if (given && status == DICOMM_SUCCESS) {
		j->hub = hub;
		return DICOMM_SUCCESS;
	}
	hub_close(hub, DICOMM_SUCCESS, "");
	*told = given;
	return given ? status : make_hub(j);
}

static bool take_place(struct join *j, struct frame_reader *in)
{
	uint32_t ranks = (uint32_t)j->config->ranks, parent, children;

	frame_get_text(in, j->where[0], sizeof(j->where[0]));
	parent = frame_get_u32(in);
	children = frame_get_u32(in);
	frame_get_bytes(in, j->place.key, sizeof(j->place.key));
	if (!frame_done(in) || parent > ranks || children >= ranks)
		return false;
	j->place.parent = (int)parent - 1;
	j->place.children = (int)children;
	return true;
}

/* Asks the id server where the hub is. A rank 0 that could not open its hub
 * connects too, to say so. If the hub has taken over this connection, this
 * rank's place in the tree comes instead of its address. */
static dicomm_result_t find_hub_by_id(struct join *j)
{
	struct client_patience p = patience(j, true);
	uint8_t key[AUTH_KEY], nonce[AUTH_NONCE];
	char *address = j->server_address, why[FRAME_TEXT] = "";
	char reach[SOCK_NAME];
	dicomm_result_t made = DICOMM_SUCCESS, status;
	struct sock_address at;
	enum frame_type type;
	struct frame_reader in;
	const char *wrong;
	bool told;

	TRY(id_parse(j->config->id, address, key));
	/* Not all of thousands */
	if (j->config->rank <= SAYERS)
		p.says = "the process that made the id";
	auth_random(nonce, sizeof(nonce));
	if (j->config->rank == 0) {
		auth_key_derive(key, nonce, j->hub_key);
		if (sock_resolve(address, &at, &wrong))
			interface_learn_toward(&at);
		made = make_hub_by_id(j, &told);
		if (told)
			return made;
	}
	id_server_reach(address, reach);
	status = client_open(reach, key, &p, &j->server, why);
	if (status != DICOMM_SUCCESS)
		return fail_connect(j, "the id server", address, status, why);
	interface_learn(j->server->conn.source.fd);
	send_join_request(j, j->server, nonce);
	TRY(made);
	TRY(expect(j, j->server, &type, &in));
	if (type == FRAME_TREE && take_place(j, &in)) {
		j->client = j->server;
		j->server = NULL;
		auth_forget(key, sizeof(key));
		return DICOMM_SUCCESS;
	}
	frame_get_text(&in, j->hub_address, sizeof(j->hub_address));
	frame_get_bytes(&in, nonce, sizeof(nonce));
	if (type != FRAME_HUB || !frame_done(&in))
		return FAIL(DICOMM_ERR_REMOTE,
			    "the id server at %s sent a frame that "
			    "does not parse",
			    address);
	auth_key_derive(key, nonce, j->hub_key);
	auth_forget(key, sizeof(key));
	return DICOMM_SUCCESS;
}

static void fill_invitation(const struct join *j, dicomm_result_t made,
			    struct invitation *mine)
{
	memcpy(mine->magic, invitation_magic, sizeof(mine->magic));
	if (made != DICOMM_SUCCESS) {
		mine->status = (uint32_t)made;
		snprintf(mine->reason, sizeof(mine->reason), "%s",
			 log_last_error());
		return;
	}
	memcpy(mine->address, j->hub_address, sizeof(mine->address));
	memcpy(mine->key, j->hub_key, sizeof(mine->key));
	recovery_secret(mine->secret.text, sizeof(mine->secret.text));
}

static dicomm_result_t accept_invitation(struct join *j,
					 const struct invitation *from)
{
	const struct control_config *c = j->config;

	if (memcmp(from->magic, invitation_magic, sizeof(from->magic)) ||
	    !memchr(from->address, '\0', sizeof(from->address)) ||
	    !memchr(from->reason, '\0', sizeof(from->reason)) ||
	    !memchr(from->secret.text, '\0', sizeof(from->secret.text)))
		return FAIL(DICOMM_ERR_REMOTE,
			    "the caller's all-gather brought no "
			    "address of rank 0");
	if (!from->address[0])
		return FAIL(frame_status(from->status), "%s", from->reason);
	memcpy(j->hub_address, from->address, sizeof(j->hub_address));
	memcpy(j->hub_key, from->key, sizeof(j->hub_key));
	if (c->secret)
		*c->secret = from->secret;
	return DICOMM_SUCCESS;
}

/* All ranks call the caller's all-gather, including a rank 0 that has no hub,
 * because the others wait in it. They call it only once: a rank that fails
 * later could not end a second one. */
static dicomm_result_t find_hub_by_callback(struct join *j)
{
	const struct control_config *c = j->config;
	struct invitation mine = {0}, *all;
	dicomm_result_t made = DICOMM_SUCCESS, status;

	if (c->rank == 0) {
		auth_random(j->hub_key, sizeof(j->hub_key));
		made = make_hub(j);
		fill_invitation(j, made, &mine);
	}
	all = calloc((size_t)c->ranks, sizeof(*all));
	if (!all)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "out of memory to join %d ranks", c->ranks);
	status = c->allgather(&mine, all, sizeof(mine), c->allgather_ctx);
	if (status != DICOMM_SUCCESS)
		status = FAIL(status, "the caller's all-gather failed");
	else if (made == DICOMM_SUCCESS)
		status = accept_invitation(j, all);
	else
		status = made;
	auth_forget(&mine, sizeof(mine));
	auth_forget(all, (size_t)c->ranks * sizeof(*all));
	free(all);
	return status;
}

/* Rank 0 was listening before it gave its address away. So if nobody listens
 * there now, rank 0 is gone, and a retry is useless. */
static dicomm_result_t connect_to_hub(struct join *j)
{
	struct client_patience p = patience(j, false);
	char why[FRAME_TEXT] = "";
	dicomm_result_t status;
	enum frame_type type;
	struct frame_reader in;

	status = client_open(j->hub_address, j->hub_key, &p, &j->client, why);
	if (status == DICOMM_SUCCESS) {
		interface_learn(j->client->conn.source.fd);
		return status;
	}
	if (status == DICOMM_ERR_REMOTE && server_knows(j, &type, &in))
		return fail_said(type, &in);
	return fail_connect(j, "rank 0", j->hub_address, status, why);
}

/* Returns false if the frame is not one of members_put_names(). */
static bool take_names(struct join *j, struct frame_reader *in)
{
	size_t n, len = sizeof(*j->where);
	const uint8_t *data = frame_get_rest(in, &n);
	struct delta_reader names = {.to = (uint8_t *)j->where,
				     .part = len,
				     .want = len * (size_t)j->config->ranks};

	if (!n)
		return true;
	j->named = true;
	if (!delta_take(&names, data, n) || names.got < names.want)
		return false;
	for (int r = 0; r < j->config->ranks; r++)
		rank_info_make_printable(j->where[r]);
	return true;
}

static dicomm_result_t enter_hub(struct join *j)
{
	enum frame_type type;
	struct frame_reader in;

	if (!j->client) {
		TRY(connect_to_hub(j));
		send_join_request(j, j->client, NULL);
	}
	for (;;) {
		TRY(expect(j, j->client, &type, &in));
		if (type == FRAME_START && take_names(j, &in))
			return DICOMM_SUCCESS;
		if (type != FRAME_TREE || !take_place(j, &in))
			return FAIL(DICOMM_ERR_REMOTE,
				    "rank 0 at %s sent a frame that "
				    "does not parse",
				    j->client->conn.remote);
	}
}

static void say_bye(struct client *c)
{
	struct frame_writer out;

	if (!c)
		return;
	frame_begin(&out, FRAME_BYE);
	client_send(c, &out);
	client_linger(c);
}

static void say_gave_up(struct client *c, dicomm_result_t status)
{
	struct frame_writer out;

	if (!c)
		return;
	frame_begin(&out, FRAME_GAVE_UP);
	frame_put_u32(&out, (uint32_t)status);
	frame_put_text(&out, log_last_error());
	client_send(c, &out);
	client_linger(c);
}

/* A program that cannot join usually ends, and with it the id server in its
 * process. So this lets the id server tell the others first. After a time-out
 * or an abort, it does not wait for more ranks to connect. */
static void let_server_tell(const struct join *j, dicomm_result_t status)
{
	bool all = status != DICOMM_ERR_TIMEOUT && status != DICOMM_ERR_ABORTED;

	if (j->server_address[0])
		id_server_flush(j->server_address, all ? ID_SERVER_ALL : 0,
				clock_ns() + (all ? WHY_NS : FLUSH_NS));
}

static dicomm_result_t join(struct join *j)
{
	j->where = calloc((size_t)j->config->ranks, sizeof(*j->where));
	if (!j->where)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "out of memory to join %d ranks", j->config->ranks);
	rank_info_where(&j->info, j->where[j->config->rank]);
	TRY(j->config->id ? find_hub_by_id(j) : find_hub_by_callback(j));
	return enter_hub(j);
}

static void give_up(struct join *j, dicomm_result_t status)
{
	say_gave_up(j->server, status);
	say_gave_up(j->client, status);
	let_server_tell(j, status);
	if (j->hub)
		id_server_take_hub(j->server_address, j->hub);
	hub_close(j->hub, status, log_last_error());
	free(j->where);
}

dicomm_result_t join_all(const struct control_config *config,
			 struct join_result *out)
{
	uint64_t now = clock_ns();
	struct join j = {.config = config,
			 .until_ns = FOREVER_NS,
			 .begin_ns = now,
			 .place = {.parent = -1},
			 .say_ns = now + SAY_NS};
	dicomm_result_t status;

	if (config->timeout_ms > 0)
		j.until_ns = now + (uint64_t)config->timeout_ms * MS_NS;
	rank_info_self(&j.info, config->rank, config->ranks);
	j.info.node = config->host;
	status = join(&j);
	auth_forget(j.hub_key, sizeof(j.hub_key));
	if (status == DICOMM_SUCCESS) {
		say_bye(j.server);
		*out = (struct join_result){j.client, j.hub, j.where, j.named,
					    j.place};
	} else {
		give_up(&j, status);
	}
	auth_forget(j.place.key, sizeof(j.place.key));
	return status;
}

/* Sends the join request and the reason. Then waits until the id server has
 * told this rank, too, that joining failed: before that, the end of this
 * process could discard the frames. */
static void say_why(struct join *j, const char *reason)
{
	const uint8_t nonce[AUTH_NONCE] = {0};
	struct frame_writer out;
	enum frame_type type;
	struct frame_reader in;
	struct client *from;
	char why[FRAME_TEXT];

	snprintf(j->hub_address, sizeof(j->hub_address), "%s",
		 ID_SERVER_GIVES_UP);
	send_join_request(j, j->server, nonce);
	frame_begin(&out, FRAME_GAVE_UP);
	frame_put_u32(&out, DICOMM_ERR_REMOTE);
	frame_put_text(&out, reason);
	client_send(j->server, &out);
	client_next(j->server, NULL, j->until_ns, NULL, &from, &type, &in, why);
	client_linger(j->server);
}

void join_tell_failure(const dicomm_unique_id_t *id, int rank, int ranks)
{
	const struct control_config config = {.rank = rank, .ranks = ranks};
	struct join j = {.config = &config, .until_ns = clock_ns() + TELL_NS};
	struct client_patience p = patience(&j, true);
	char reason[FRAME_TEXT], why[FRAME_TEXT], reach[SOCK_NAME];
	uint8_t key[AUTH_KEY];
	const char *wrong;

	snprintf(reason, sizeof(reason), "%s", log_last_error());
	if (!id_read(id, j.server_address, key, &wrong))
		return;
	rank_info_self(&j.info, rank, ranks);
	id_server_reach(j.server_address, reach);
	if (client_open(reach, key, &p, &j.server, why) == DICOMM_SUCCESS) {
		say_why(&j, reason);
		let_server_tell(&j, DICOMM_ERR_REMOTE);
	} else {
		log_debug("rank %d: cannot report that to the others: %s", rank,
			  why);
	}
	auth_forget(key, sizeof(key));
}
