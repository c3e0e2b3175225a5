#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# PyTorch trains over this build: python/ is made a wheel, installed, and
# tested with the PyTorch of PyPI, which is downloaded once into a cache of the
# user (python/tests/environment). DICOMM_TEST_TORCH names another version, or
# "no". Skipped, with the reason, where PyTorch cannot be had.
top=$(cd "${srcdir:-.}" && pwd)
cd "${top_builddir:-.}" || exit 99
build=$(pwd)

if [ "$DICOMM_TEST_TORCH" = no ]; then
	echo "DICOMM_TEST_TORCH says no"
	exit 77
fi
if [ ! -e .libs/libdicomm.so.1 ]; then
	echo "this build has no shared library"
	exit 77
fi
out=$(mktemp -d) || exit 99
trap 'rm -rf "$out"' EXIT

folder=$(sh "$top/python/tests/environment" "$DICOMM_TEST_TORCH") || exit
python=$folder/bin/python
OMP_NUM_THREADS=1
LIBDICOMM_FILE=$build/.libs/libdicomm.so.1
PYTHONPATH=$out/site
PYTHONDONTWRITEBYTECODE=1
DICOMM_SOCKET_IFNAME=lo
export OMP_NUM_THREADS LIBDICOMM_FILE PYTHONPATH PYTHONDONTWRITEBYTECODE \
	DICOMM_SOCKET_IFNAME

# setuptools write into the folder of the source
mkdir -p "$out/source" &&
	cp -R "$top/python/pyproject.toml" "$top/python/README.md" \
		"$top/python/src" "$out/source" &&
	chmod -R u+w "$out/source" &&
	"$python" -m pip install -q --no-deps --no-index --no-build-isolation \
		--disable-pip-version-check --target "$out/site" \
		"$out/source" || exit 1

bad=0
# The frameworks take a gigabyte, and minutes. Models of one of them are tested
# below.
if [ "$DICOMM_TEST_LONG" = 1 ]; then
	"$python" "$top/python/tests/frameworks.py" || [ $? = 77 ] || bad=1
fi
if [ "$DICOMM_TEST_SHORT" = 1 ]; then
	set -- operations
else
	set --
fi
"$python" "$top/python/tests/run.py" "$@" || bad=1

# By torchrun, and found by its name alone.
for example in torch_ddp torch_pipeline torch_mixed; do
	"$folder/bin/torchrun" --standalone --nproc-per-node 2 \
		"$top/examples/$example.py" >"$out/log" 2>&1
	status=$?
	if grep 'no device to mix with' "$out/log"; then
		echo "skipped examples/$example.py"
	elif [ $status -ne 0 ] || ! grep -q '^loss after ' "$out/log"; then
		echo "not ok examples/$example.py, status $status"
		cat "$out/log"
		bad=1
	else
		echo "ok examples/$example.py: $(grep '^loss after ' "$out/log")"
	fi
done

# A plan of unlike pipelines, whose last loss is that of one process.
if "$folder/bin/torchrun" --standalone --nproc-per-node 4 \
	"$top/examples/hetero_gpt.py" "$top/examples/plans/degrees.json" \
	--steps 5 --profile "$out/profile.json" >"$out/log" 2>&1 &&
	"$python" "$top/examples/hetero_gpt.py" --steps 5 >"$out/alone" &&
	[ "$(grep -c '^step ' "$out/log")" = 5 ] &&
	grep -h '^step 4: loss ' "$out/log" "$out/alone" |
	awk '{ d = $4 - last; last = $4 } END { exit !(d * d < 1e-9) }'; then
	echo "ok examples/hetero_gpt.py: $(grep '^step 4' "$out/log")"
else
	echo "not ok examples/hetero_gpt.py"
	cat "$out/log"
	bad=1
fi

# Its profile is one that dicomm-plan takes, if this build has that.
if [ -x "$build/dicomm-plan" ] && [ -e "$out/profile.json" ]; then
	echo '{"nodes": [{"ranks": 4, "inside_gbit_per_s": 10,' \
		'"device": "host"}], "devices": {"host":' \
		'{"tflops": 0.1, "memory_gib": 4}}}' >"$out/cluster.json"
	if "$build/dicomm-plan" simulate --cluster "$out/cluster.json" \
		--model "$out/profile.json.model" \
		--profile "$out/profile.json" \
		--plan "$top/examples/plans/degrees.json" >"$out/log" 2>&1 &&
		grep -q '^step .*from measured times' "$out/log"; then
		echo "ok its profile: $(head -n 1 "$out/log")"
	else
		echo "not ok its profile"
		cat "$out/log"
		bad=1
	fi

	# The best plans of a search, tried.
	echo '{"num_hidden_layers": 4, "hidden_size": 32, "vocab_size": 64,' \
		'"num_attention_heads": 4, "intermediate_size": 128,' \
		'"gated": false, "dtype": "float32"}' >"$out/config.json"
	if "$build/dicomm-plan" search --cluster "$out/cluster.json" \
		--model "$out/config.json" -g 8 -s 32 --rounds 4 --keep 2 \
		-o "$out/plan.json" >"$out/log" 2>&1 &&
		"$folder/bin/torchrun" --standalone --nproc-per-node 4 \
			-m dicomm_torch.hetero.trial --steps 2 \
			--plans "$out/plan.json" "$out/plan.2.json" \
			--model "$out/config.json" --results "$out/results" \
			-o "$out/best.json" >"$out/log" 2>&1 &&
		grep -q '^ 2 .*plan' "$out/log" &&
		grep -q '"measured"' "$out/best.json"; then
		echo "ok a trial of its plans: $(grep '^the order' "$out/log")"
	else
		echo "not ok a trial of its plans"
		cat "$out/log"
		bad=1
	fi
fi
exit $bad
