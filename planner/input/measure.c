/* SPDX-License-Identifier: BSD-3-Clause */
/* Measures layers by running them under PyTorch. */
#include "planner/input/measure.h"

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "planner/input/input.h"

/* argv: layers hidden heads kv_heads head_width ffn vocab gated element
 * sequence most device file */
static const char script[] =
	"import json, sys, time\n"
	"try:\n"
	"    import torch\n"
	"except ImportError as e:\n"
	"    sys.exit('PyTorch is not there: %s' % e)\n"
	"import torch.nn.functional as F\n"
	"a = sys.argv[1:]\n"
	"L, H, N, K, W, M, V, G, E, S, B = map(int, a[:11])\n"
	"name, path = a[11], a[12]\n"
	"acc = getattr(torch, 'accelerator', None)\n"
	"gpu = acc is not None and acc.is_available()\n"
	"dev = acc.current_accelerator() if gpu else torch.device('cpu')\n"
	"dt = torch.float32 if E == 4 else torch.bfloat16\n"
	"sync = acc.synchronize if gpu else (lambda: None)\n"
	"class Block(torch.nn.Module):\n"
	"    def __init__(s):\n"
	"        super().__init__()\n"
	"        n = lambda i, o: torch.nn.Linear(i, o, bias=False)\n"
	"        s.a, s.b = torch.nn.LayerNorm(H), torch.nn.LayerNorm(H)\n"
	"        s.q, s.k, s.v = n(H, N * W), n(H, K * W), n(H, K * W)\n"
	"        s.o, s.u, s.d = n(N * W, H), n(H, M), n(M, H)\n"
	"        s.g = n(H, M) if G else None\n"
	"    def forward(s, x):\n"
	"        y = s.a(x)\n"
	"        h = lambda t, c: t.view(len(x), S, c, W).transpose(1, 2)\n"
	"        r = lambda t: h(t, K).repeat_interleave(N // K, 1)\n"
	"        y = F.scaled_dot_product_attention(h(s.q(y), N), r(s.k(y)),\n"
	"            r(s.v(y)), is_causal=True)\n"
	"        x = x + s.o(y.transpose(1, 2).reshape(len(x), S, N * W))\n"
	"        y = s.b(x)\n"
	"        y = F.silu(s.g(y)) * s.u(y) if G else F.gelu(s.u(y))\n"
	"        return x + s.d(y)\n"
	"class Head(torch.nn.Module):\n"
	"    def __init__(s):\n"
	"        super().__init__()\n"
	"        s.n = torch.nn.LayerNorm(H)\n"
	"        s.o = torch.nn.Linear(H, V, bias=False)\n"
	"    def forward(s, x):\n"
	"        y = s.o(s.n(x)).float().view(-1, V)\n"
	"        t = torch.zeros(len(y), dtype=torch.long, device=dev)\n"
	"        return F.cross_entropy(y, t)\n"
	"def clock(f):\n"
	"    sync()\n"
	"    t = time.perf_counter()\n"
	"    r = f()\n"
	"    sync()\n"
	"    return time.perf_counter() - t, r\n"
	"def run(m, x, opt):\n"
	"    f, b, u = [], [], []\n"
	"    for i in range(5):\n"
	"        t, y = clock(lambda: m(x))\n"
	"        f.append(t)\n"
	"        g = torch.ones_like(y)\n"
	"        b.append(clock(lambda: y.backward(g))[0])\n"
	"        u.append(clock(opt.step)[0])\n"
	"    m2 = lambda l: sorted(l[1:])[1]\n"
	"    return [m2(f), m2(b), m2(u)]\n"
	/* What a message costs each side: passes of a block, with the host
	 * waiting for the device at each message for what it says of itself,
	 * beside the same passes without; in turn, and the least of each, for
	 * others use the machine, too. */
	"def waits(block):\n"
	"    x = torch.randn(1, S, H, device=dev, dtype=dt, "
	"requires_grad=True)\n"
	"    head = torch.zeros(8, dtype=torch.long)\n"
	"    def go(wait):\n"
	"        for i in range(2):\n"
	"            y = block(x)\n"
	"            wait()\n"
	"            y.backward(torch.ones_like(y))\n"
	"            wait()\n"
	"    ways = [lambda: None, lambda: head.to(dev).tolist()]\n"
	"    t = [[clock(lambda: go(w))[0] for w in ways] for i in "
	"range(12)]\n"
	"    return max(0, min(b for a, b in t) - min(a for a, b in t)) / 4\n"
	"res, b = {}, 1\n"
	"units = [(torch.nn.Embedding(V, H), '0'), (Block(), '1-%d' % L),\n"
	"         (Head(), '%d' % (L + 1))]\n"
	"units = [(m.to(dev, dt), k) for m, k in units]\n"
	"opts = [torch.optim.AdamW(m.parameters()) for m, k in units]\n"
	"while b <= B:\n"
	"    row = {}\n"
	"    try:\n"
	"        for (m, k), o in zip(units, opts):\n"
	"            x = (torch.randint(V, (b, S), device=dev) if k == '0' "
	"else\n"
	"                 torch.randn(b, S, H, device=dev, dtype=dt,\n"
	"                             requires_grad=True))\n"
	"            row[k] = run(m, x, o)\n"
	"    except RuntimeError as e:\n"
	"        if 'memory' not in str(e):\n"
	"            raise\n"
	"        break\n"
	"    res[str(b)] = {'1': row}\n"
	"    print('measured a micro-batch of %d of at most %d' % (b, B),\n"
	"          file=sys.stderr, flush=True)\n"
	"    b *= 2\n"
	"if not res:\n"
	"    sys.exit('a micro-batch of 1 does not fit into memory')\n"
	"json.dump({'remark': '%s, torch %s' % (dev, torch.__version__),\n"
	"           'sequence': S, 'devices': {name: res},\n"
	"           'messages': {'side_s': waits(units[1][0])}},\n"
	"          open(path, 'w'), indent=1)\n";

#define TIMEOUT_S 600

extern char **environ;

/* Its exit status; -1 after a message. */
static int wait_for(pid_t child)
{
	int status;

	for (int i = 0; i < TIMEOUT_S * 10; i++) {
		if (waitpid(child, &status, WNOHANG) == child)
			return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
		usleep(100000);
	}
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	input_complain("measure: not done after %d s", TIMEOUT_S);
	return -1;
}

bool measure_profile(const struct model *m, int seq, int most,
		     const char *device, const char *python, const char *out)
{
	const int numbers[] = {m->layers,     m->hidden, m->heads, m->kv_heads,
			       m->head_width, m->ffn,    m->vocab, m->gated,
			       m->element,    seq,       most};
	enum { N = sizeof(numbers) / sizeof(numbers[0]) };
	char text[N][16];
	const char *argv[N + 6] = {python, "-c", script};
	pid_t child;
	int status;

	for (int i = 0; i < N; i++) {
		snprintf(text[i], sizeof(text[i]), "%d", numbers[i]);
		argv[3 + i] = text[i];
	}
	argv[3 + N] = device;
	argv[4 + N] = out;
	argv[5 + N] = NULL;
	status = posix_spawnp(&child, python, NULL, NULL, (char **)argv,
			      environ);
	if (status) {
		input_complain("measure: %s: %s", python, strerror(status));
		return false;
	}
	status = wait_for(child);
	if (status > 0)
		input_complain("measure: %s ended with status %d", python,
			       status);
	return status == 0;
}
