#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# dicomm-plan as its users see it: commands, files, complaints.
plan=${top_builddir:-.}/dicomm-plan
data=${srcdir:-.}/tests/planner/sailor
if ! [ -x "$plan" ]; then
	echo "skipped: dicomm-plan is not built"
	exit 77
fi
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
bad=0

fail()
{
	echo "$*"
	cat "$work/out" "$work/err"
	bad=1
}

run() # STATUS ARGUMENT...
{
	wanted=$1
	shift
	"$plan" "$@" >"$work/out" 2>"$work/err"
	got=$?
	[ $got -eq "$wanted" ] || fail "$*: status $got, wanted $wanted"
}

says() # TEXT, on the screen or on stderr
{
	cat "$work/out" "$work/err" | grep -qF -- "$1" || fail "not said: $1"
}

cat >"$work/cluster.json" <<EOF
{"nodes": [{"count": 2, "ranks": 4, "gbit_per_s": 100,
  "inside_gbit_per_s": 2400, "device": "a"},
 {"count": 1, "ranks": 4, "gbit_per_s": 25, "inside_gbit_per_s": 200,
  "device": "b"}],
 "devices": {"a": {"tflops": 300, "memory_gib": 40},
  "b": {"tflops": 150, "memory_gib": 24}}}
EOF
# As Hugging Face writes it, with keys that are not ours.
cat >"$work/config.json" <<EOF
{"architectures": ["LlamaForCausalLM"], "bos_token_id": 1,
 "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 5632,
 "max_position_embeddings": 4096, "model_type": "llama",
 "num_attention_heads": 16, "num_hidden_layers": 16, "num_key_value_heads": 8,
 "pretraining_tp": 1, "rope_scaling": null, "tie_word_embeddings": false,
 "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 32000}
EOF
set -- --cluster "$work/cluster.json" --model "$work/config.json"

# ---- a plan is found, and all commands take it ----

run 0 search "$@" -g 96 -s 2048 --rounds 4 --seed 3 -o "$work/plan.json"
says "why the runner-up lost"
says "memory of the fullest device of each type"
run 0 search "$@" -g 96 -s 2048 --rounds 4 --seed 3 --jobs 3 \
	-o "$work/again.json"
cmp "$work/plan.json" "$work/again.json" || fail "threads changed the plan"
run 0 check "$@" --plan "$work/plan.json"
says "good"
for schedule in 1f1b gpipe; do
	for overlap in none send p2p full; do
		run 0 simulate "$@" --plan "$work/plan.json" \
			--schedule $schedule --overlap $overlap --zero 1
		says "step "
	done
done
# Several plans, the best one first, are those that a trial would run.
run 0 search "$@" -g 96 -s 2048 --rounds 4 --seed 3 --keep 3 \
	-o "$work/best.json"
says "best.3.json, steps of"
last=0
for kept in best best.2 best.3; do
	run 0 simulate "$@" --plan "$work/$kept.json" --json
	step=$(sed -n 's/.*"step_s": \([0-9.]*\).*/\1/p' "$work/out")
	awk -v a="$last" -v b="$step" 'BEGIN { exit !(a < b) }' ||
		fail "$kept.json: $step s, the one before $last s"
	last=$step
done
cmp "$work/plan.json" "$work/best.json" || fail "--keep: another best plan"
# Those of an earlier search do not stay beside them; what others wrote does.
cp "$work/best.3.json" "$work/best.9.json"
echo '{"version": 1}' >"$work/best.8.json"
run 0 search "$@" -g 96 -s 2048 --symmetric --micro-batch 16 --keep 8 \
	-o "$work/best.json"
says "were wanted"
says "best.9.json: removed: a plan of an earlier search"
[ ! -e "$work/best.9.json" ] || fail "a plan of an earlier search stayed"
[ -e "$work/best.8.json" ] || fail "what no search has written is gone"
run 6 search "$@" -g 96 -s 2048 --keep 3
says "--keep: 3: wanted with --out"
run 6 search "$@" -g 96 -s 2048 --keep 17 -o "$work/x.json"
says "--keep: 17: wanted a whole number from 1 to 16"
run 6 search "$@" -g 96 -s 2048 --keep 2 --max-devices 3 -o "$work/x.json"
says "--keep: 2: wanted without --objective and limits"
run 6 replan "$@" --keep 2 --lost 0 --plan "$work/plan.json"
says "--keep: not an option of replan, but of search"
# As trainers take them, unless it is said otherwise.
grep -q '"zero": 0' "$work/plan.json" || fail "a plan with ZeRO"
run 0 search "$@" -g 96 -s 2048 --rounds 4 --zero any -o "$work/any.json"
grep -q '"zero": [1-3]' "$work/any.json" || fail "--zero any: ZeRO 0"
run 0 check "$@" --plan "$work/any.json"
run 6 search "$@" -g 96 -s 2048 --zero 4
says "--zero: 4: wanted 0, 1, 2, 3 or any"
run 6 simulate "$@" --plan "$work/plan.json" --zero any
says "--zero: any: wanted 0, 1, 2 or 3 with simulate"
run 0 explain "$@" --plan "$work/plan.json"
says "compute"
run 0 groups "$@" --plan "$work/plan.json"
says "weighted by each pipeline's part"
run 0 simulate "$@" --plan "$work/plan.json" --cost flashflex
says "by the cost model of FlashFlex"
run 0 simulate "$@" --plan "$work/plan.json" --export torch
says '"tp_group"'
run 0 search "$@" -g 96 -s 2048 --symmetric -o "$work/symmetric.json"
run 0 compare "$@" --plan "$work/plan.json" --plan "$work/symmetric.json"
says "x 1.000"
# Each by its own batch and sequence: what a token takes counts.
sed 's/"sequence": 2048/"sequence": 512/' "$work/plan.json" >"$work/short.json"
run 0 simulate "$@" --plan "$work/short.json" --json
step=$(sed -n 's/.*"step_s": \([0-9]*\.[0-9]\{4\}\).*/\1/p' "$work/out")
run 0 compare "$@" --plan "$work/plan.json" --plan "$work/short.json"
awk -v step="$step" '$1 ~ /short/ { d = $2 - step; exit !(d * d < 1e-6) }
	' "$work/out" || fail "short.json: not $step s"
says "of 96 sequences of 2048 tokens, not 96 of 512"
run 0 simulate "$@" --plan "$work/symmetric.json" --export megatron
says "--pipeline-model-parallel-size"
run 0 simulate "$@" --plan "$work/symmetric.json" --export flagscale
says "hetero_process_meshes"

# Experts whose matrices are split want more of Megatron, and have a width of
# their own.
cat >"$work/mixture.json" <<EOF
{"num_hidden_layers": 4, "hidden_size": 512, "num_attention_heads": 8,
 "intermediate_size": 2048, "vocab_size": 1000, "num_experts": 8,
 "num_experts_per_tok": 2, "moe_intermediate_size": 1024}
EOF
cat >"$work/experts.json" <<EOF
{"version": 1, "sequence": 512, "global_batch": 8, "expert_parallel": 2,
 "pipelines": [{"micro_batch": 1, "micro_batches": 4,
  "stages": [{"ranks": [0, 1], "tp": 2, "layers": [0, 5]}]},
  {"micro_batch": 1, "micro_batches": 4,
  "stages": [{"ranks": [2, 3], "tp": 2, "layers": [0, 5]}]}]}
EOF
run 0 simulate --cluster "$work/cluster.json" --model "$work/mixture.json" \
	--plan "$work/experts.json" --export megatron
says "--expert-model-parallel-size 2 --moe-ffn-hidden-size 1024"
says "--sequence-parallel"
sed 's/\[\([02]\), [13]\], "tp": 2/[\1], "tp": 1/
	' "$work/experts.json" >"$work/single.json"
sed 's/1024/2048/' "$work/mixture.json" >"$work/wide.json"
run 0 simulate --cluster "$work/cluster.json" --model "$work/wide.json" \
	--plan "$work/single.json" --export megatron
says "--expert-model-parallel-size 2"
grep -q -e "--moe-\(ffn\|shared\|layer\)\|--sequence-parallel" "$work/out" &&
	fail "options that nothing asks for"
sed 's/"num_experts": 8/"shared_expert_intermediate_size": 256, &/
	s/"vocab_size"/"first_k_dense_replace": 1, &/
	' "$work/mixture.json" >"$work/dense.json"
run 0 simulate --cluster "$work/cluster.json" --model "$work/dense.json" \
	--plan "$work/experts.json" --export megatron
says "--moe-shared-expert-intermediate-size 256"
says '--moe-layer-freq "[0,1,1,1]"'
sed 's/"first_k_dense_replace": 1/"decoder_sparse_step": 2/
	' "$work/dense.json" >"$work/every.json"
run 0 simulate --cluster "$work/cluster.json" --model "$work/every.json" \
	--plan "$work/experts.json" --export megatron
says '--moe-layer-freq "[0,1,0,1]"'

# What experts take at most is in the plan, as the trainer wants it.
for capacity in 1.25 0; do
	run 0 search --cluster "$work/cluster.json" \
		--model "$work/mixture.json" -g 8 -s 512 --rounds 1 \
		--expert-parallel 2 --imbalance 2 --capacity $capacity \
		-o "$work/capacity$capacity.json"
done
grep -q '"capacity": 1.25' "$work/capacity1.25.json" || fail "no capacity"
grep -q capacity "$work/capacity0.json" && fail "a capacity of 0 is told"
step_of()
{
	run 0 simulate --cluster "$work/cluster.json" \
		--model "$work/mixture.json" --imbalance 2 "$@"
	awk '/^step / { print $2 }' "$work/out"
}
known=$(step_of --plan "$work/capacity1.25.json")
says "each expert takes at most 1.25 times"
sed '/"capacity"/d' "$work/capacity1.25.json" >"$work/without.json"
[ "$(step_of --plan "$work/without.json" --capacity 1.25)" = "$known" ] ||
	fail "--capacity is no capacity"
[ "$(step_of --plan "$work/without.json")" != "$known" ] ||
	fail "a capacity costs nothing"
run 0 simulate --cluster "$work/cluster.json" --model "$work/mixture.json" \
	--plan "$work/experts.json" --capacity 1.5 --export megatron
says "--moe-expert-capacity-factor 1.5"
sed 's/"expert_parallel": 2/"capacity": 0.5, &/' "$work/experts.json" \
	>"$work/less.json"
run 6 check --cluster "$work/cluster.json" --model "$work/mixture.json" \
	--plan "$work/less.json"
says "capacity: 0.5: wanted a number from 1 on"

# ---- devices without work are named: the last node is too slow for these ----

sed 's/"gbit_per_s": 25, /"gbit_per_s": 0.1, "name": "far", /
	s/"count": 2, /&"name": "near", /' "$work/cluster.json" |
	sed 's/"count": 2, "name": "near", "ranks": 4/"ranks": 4, "name": "near"/
	s/"count": 1, //' >"$work/far.json"
run 0 search --cluster "$work/far.json" --model "$work/config.json" -g 8 \
	-s 2048 -o "$work/idle.json"
says "idle: 4 of 8 devices"
says "ranks 4-7 of far"
run 0 explain --cluster "$work/far.json" --model "$work/config.json" \
	--plan "$work/idle.json"
says "ranks 4-7 of far"
run 0 simulate --cluster "$work/far.json" --model "$work/config.json" \
	--plan "$work/idle.json" --json
tr -d ' \n' <"$work/out" | grep -q '"idle":\[4,5,6,7\]' ||
	fail "idle devices are not in the JSON"
run 0 simulate "$@" --plan "$work/symmetric.json"
grep -q idle "$work/out" && fail "idle devices that are none"

# ---- which host runs which ranks ----

run 7 simulate "$@" --plan "$work/plan.json" --export launch
says "--export: launch: wanted flagscale, megatron, torch, hostfile, slurm or"
run 7 simulate "$@" --plan "$work/plan.json" --export hostfile
says "node 0 has no name: wanted the name of its host in each entry of nodes"
set -- --cluster "$work/far.json" --model "$work/config.json" \
	--plan "$work/idle.json"
run 0 simulate "$@" --export hostfile
says "near slots=4"
says "far slots=4"
run 0 simulate "$@" --export slurm -o "$work/job.sh"
sh -n "$work/job.sh" || fail "no script"
grep -q '^#SBATCH --nodelist=near,far$' "$work/job.sh" || fail "no hosts"
# Run without Slurm, each rank gets its number, and the program its arguments.
mkdir "$work/bin"
cat >"$work/bin/srun" <<'EOF'
while [ "$1" != sh ]; do
	shift
done
rank=0
while read -r host; do
	SLURM_PROCID=$rank SLURM_NTASKS=8 SLURM_LOCALID=0 "$@"
	echo "on $host of $MASTER_ADDR"
	rank=$((rank + 1))
done <"$SLURM_HOSTFILE"
EOF
chmod +x "$work/bin/srun"
PATH=$work/bin:$PATH sh "$work/job.sh" sh -c 'echo $1 $RANK/$WORLD_SIZE' - "a b" \
	>"$work/out" 2>"$work/err"
says "a b 0/8"
says "a b 7/8"
[ "$(grep -c '^on near of near$' "$work/out")" = 4 ] || fail "hosts of ranks"
run 0 simulate "$@" --export jobset
says 'kubernetes.io/hostname: "far"'
says '--nnodes 2 --node-rank $((1 + JOB_COMPLETION_INDEX)) --nproc-per-node 4'
if python3 -c 'import yaml' 2>"$work/err"; then
	python3 - "$work/out" <<'EOF' || fail "no JobSet"
import json, sys, yaml
plan, jobs = yaml.safe_load_all(open(sys.argv[1]))
assert json.loads(plan["data"]["plan.json"])["pipelines"]
jobs = [job["template"]["spec"] for job in jobs["spec"]["replicatedJobs"]]
assert [job["completions"] for job in jobs] == [1, 1], jobs
EOF
fi
# A host's name is text, whatever it looks like, and nothing else.
sed 's/"far"/"0777"/' "$work/far.json" >"$work/named.json"
set -- --model "$work/config.json" --plan "$work/idle.json"
run 0 simulate --cluster "$work/named.json" "$@" --export jobset
says 'kubernetes.io/hostname: "0777"'
for name in 'x; reboot' 'x\\ny' '$(id)' '-x' '/0'; do
	sed "s:\"far\":\"$name\":" "$work/far.json" >"$work/named.json"
	for format in hostfile slurm jobset; do
		run 7 simulate --cluster "$work/named.json" "$@" \
			--export $format
		says "--export $format: $work/named.json: node 1: name: "
	done
done
set -- --cluster "$work/cluster.json" --model "$work/config.json"
run 0 simulate "$@" --plan "$work/plan.json" --export jobset
says 'dicomm/device: "a"'
says "completions: 2"
sed 's/"a"/"(a 80GB)"/' "$work/cluster.json" >"$work/odd.json"
run 0 simulate "$@" --cluster "$work/odd.json" --plan "$work/plan.json" \
	--export jobset
says 'dicomm/device: "a-80GB"'

# ---- pictures ----

run 0 simulate "$@" --plan "$work/plan.json" --trace "$work/trace.json" \
	--svg "$work/plan.svg"
grep -q '"ph": "X"' "$work/trace.json" || fail "no events in the trace"
grep -q '</svg>' "$work/plan.svg" || fail "no picture"

# ---- hosts that were found ----

cat >"$work/host.json" <<EOF
{"nodes": [{"name": "n1", "gbit_per_s": 100, "machine": {"numa": [],
 "devices": [{"name": "host", "description": "cores"},
  {"name": "cuda:0", "description": "NVIDIA A100-SXM4-80GB"},
  {"name": "cuda:1", "description": "NVIDIA A100-SXM4-80GB"}]}}]}
EOF
cat >"$work/links.json" <<EOF
{"nodes": [{"name": "n1", "gbit_per_s": 9.5, "latency_us": 30}]}
EOF
run 0 detect "$work/host.json" --cluster "$work/links.json" \
	-o "$work/found.json"
grep -q '"gbit_per_s": 9.5' "$work/found.json" || fail "rates not taken"
run 0 search --cluster "$work/found.json" --model "$work/config.json" -g 8 \
	-s 2048
# A host of two types is two nodes behind one way out.
sed 's/A100-SXM4-80GB"}]/GeForce RTX 3090"}]/
	s/"n1", "gbit_per_s": 100/"n2", "gbit_per_s": 25/' "$work/host.json" \
	>"$work/mixed.json"
run 0 detect "$work/host.json" "$work/mixed.json" -o "$work/found.json"
tr -d ' \n' <"$work/found.json" >"$work/out"
says '"islands":[{"name":"n2","gbit_per_s":25}]'
says '"name":"n2/1","island":"n2","gbit_per_s":200.0,"ranks":1,'
# So many rounds that a team might be put to work twice.
run 0 search --cluster "$work/found.json" --model "$work/config.json" -g 8 \
	-s 2048 --rounds 256 -o "$work/mixed-plan.json"
run 0 check --cluster "$work/found.json" --model "$work/config.json" \
	--plan "$work/mixed-plan.json"
run 0 simulate --cluster "$work/found.json" --model "$work/config.json" \
	--plan "$work/mixed-plan.json" --export hostfile
says "n2 slots=2"
run 0 simulate --cluster "$work/found.json" --model "$work/config.json" \
	--plan "$work/mixed-plan.json" --export jobset
[ "$(grep -c 'nvidia.com/gpu: 2' "$work/out")" = 2 ] ||
	fail "no devices for a host of two types"
# By its domain, too.
sed 's/"n2"/"n2.a.org"/' "$work/mixed.json" >"$work/domain.json"
sed 's/"n1"/"n2.a.org"/' "$work/links.json" >"$work/domain-links.json"
run 0 detect "$work/domain.json" --cluster "$work/domain-links.json" \
	-o "$work/found.json"
[ -s "$work/err" ] && fail "a host is said to be missing"
run 6 detect "$work/domain.json" "$work/domain.json"
says 'nodes[0].name: "n2.a.org": wanted a host that was not there before'
run 6 detect "$work/mixed.json" "$work/mixed.json"
says 'nodes[0].name: "n2": wanted a host that was not there before'
sed 's/"n2"/&, "island": "east"/' "$work/mixed.json" >"$work/odd.json"
run 6 detect "$work/odd.json"
says 'nodes[0].island: "east": wanted none: as this host has several types'

sed 's/A100-SXM4-80GB/Abacus 7/g' "$work/host.json" >"$work/odd.json"
run 6 detect "$work/odd.json"
says 'odd.json: nodes[0].machine.devices[1].description: "NVIDIA Abacus 7": '
says 'wanted one of GB200, B200'
says 'write tflops and memory_gib into devices'
# A word of its own is its name.
sed 's/A100-SXM4-80GB/GH200 480GB/g' "$work/host.json" >"$work/odd.json"
run 0 detect "$work/odd.json"
says '"device": "GH200"'

# Rates of other hosts are none of these; a part of them is said to be missing.
sed 's/"n1"/"n2"/' "$work/host.json" >"$work/host2.json"
run 6 detect "$work/host2.json" --cluster "$work/links.json"
says 'links.json: nodes: '
says 'wanted at least one of the hosts of the other files'
run 0 detect "$work/host.json" "$work/host2.json" --cluster "$work/links.json"
says 'host2.json: nodes[0].name: n2: not among the hosts of '
sed 's/{"name": "n1"/{"name": "n9"}, &/; s/"n1"/"n1.domain"/' \
	"$work/links.json" >"$work/more.json"
run 0 detect "$work/host.json" --cluster "$work/more.json" -o "$work/found.json"
says 'more.json: nodes[0].name: n9: left out'
grep -q '"gbit_per_s": 9.5' "$work/found.json" || fail "rates not taken"
# Nor is a host dropped that shares its file, or its name, with another one.
run 6 detect "$work/host.json" "$work/host.json"
says 'nodes[0].name: "n1": wanted a host that was not there before'
sed 's/{"nodes": \[\(.*\)/{"nodes": [{"name": "n0", "gbit_per_s": 7,\
 "machine": {"numa": []}}, \1/' "$work/host.json" >"$work/two.json"
run 0 detect "$work/two.json" -o "$work/found.json"
grep -q '"n0"' "$work/found.json" || fail "a host was dropped"
grep -q '"n1"' "$work/found.json" || fail "a host was dropped"

# ---- what is wrong is named: file, place, value ----

wrong() # FILE SED-SCRIPT TEXT
{
	sed "$2" "$work/$1.json" >"$work/wrong.json"
	cmp -s "$work/$1.json" "$work/wrong.json" && fail "sed $2: no change"
	case $1 in
	cluster)
		run 6 search --cluster "$work/wrong.json" \
			--model "$work/config.json" -g 96 -s 2048
		;;
	config)
		run 6 search --cluster "$work/cluster.json" \
			--model "$work/wrong.json" -g 96 -s 2048
		;;
	plan)
		"$plan" check --cluster "$work/cluster.json" \
			--model "$work/config.json" --plan "$work/wrong.json" \
			>"$work/out" 2>"$work/err" &&
			fail "$2: accepted"
		;;
	esac
	says "$3"
}
wrong cluster 's/"device": "b"/"device": "c"/' \
	'nodes[1].device: "c": wanted one of devices'
wrong cluster 's/"gbit_per_s": 25, //' 'nodes[1].gbit_per_s: missing'
wrong cluster 's/"inside_gbit_per_s": 200,//' \
	'nodes[1].inside_gbit_per_s: missing'
wrong cluster 's/"tflops": 150/"tflops": "150T"/' \
	'devices.b.tflops: "150T": wanted a number'
wrong cluster 's/"memory_gib": 24/"memory_gib": 0.5/' \
	'devices.b.memory_gib: 0.5: wanted more than its reserved_gib, 1'
wrong cluster 's/"tflops": 150/"gflops": 150/' 'devices.b.gflops: 150'
wrong config 's/"num_hidden_layers": 16/"num_hidden_layers": 16.5/' \
	'num_hidden_layers: 16.5: wanted a whole number'
wrong config 's/"vocab_size": 32000/"vocabulary": 32000/' 'vocab_size: missing'
wrong config 's/"use_cache": true/"num_experts": 8/' 'a mixture of experts'
wrong plan 's/"tp": [0-9]*/"tp": 3/' '.tp: 3: wanted the number of its ranks'
wrong plan 's/"global_batch": 96/"global_batch": 95/' 'wanted 95, the global'
wrong plan 's/"schedule": "1f1b"/"schedule": "zb"/' \
	'schedule: "zb": wanted 1f1b, gpipe, interleaved or zb-h1'
wrong plan 's/"overlap"/"overlaps"/' 'overlaps: "p2p": wanted no such key'
run 6 search "$@" -g 96 -s 2048 --space colour
says "--space: colour: wanted type, device or auto"
run 6 simulate "$@" --plan "$work/none.json"
says "none.json"
run 6 fly
says "fly: no such command"
run 7 search --cluster "$work/cluster.json" --model "$work/config.json" \
	-g 64 -s 2000000
says "no plan fits: llama on the devices of "
says "of activations"
says "GiB: "
says "are missing"
run 7 search --cluster "$work/cluster.json" --model "$work/config.json" \
	-g 64 -s 2048 --micro-batch 3
says "--micro-batch: 3: wanted a divisor of the global batch, 64"

# ---- no guesses beyond what was measured ----

run 7 search --cluster "$data/mit_cluster.json" \
	--model "$data/opt_350m.json" --profile "$data/mit_profile.json" \
	-g 96 -s 2048 --micro-batch 4
sed 's/"micro_batch": 2, "micro_batches": 64/"micro_batch": 4, "micro_batches": 32/' \
	"$data/mit_n4_d2.json" >"$work/other.json"
run 7 simulate --cluster "$data/mit_cluster.json" \
	--model "$data/opt_350m.json" --profile "$data/mit_profile.json" \
	--plan "$work/other.json"
says "measured up to micro-batch 2; 4 would be a guess"

# ---- micro-batches ahead ----

run 0 simulate --cluster "$data/mit_cluster.json" \
	--model "$data/opt_350m.json" --profile "$data/mit_profile.json" \
	--plan "$data/mit_n4_d2.json" --overlap p2p --ahead 1 --export torch
says '"ahead": 1'
run 7 simulate --cluster "$data/mit_cluster.json" \
	--model "$data/opt_350m.json" --profile "$data/mit_profile.json" \
	--plan "$data/mit_n4_d2.json" --ahead 1
says "ahead: 1: wanted 0 with the overlap send"
run 0 groups --cluster "$data/mit_cluster.json" \
	--model "$data/opt_350m.json" --profile "$data/mit_profile.json" \
	--plan "$data/mit_n3_d1.json"
says "no gradients: there is one pipeline"

# The search takes it, for memory and time; where it cannot be, it says so.
run 0 search --cluster "$work/cluster.json" --model "$work/config.json" \
	-g 96 -s 2048 --rounds 1 --ahead 1 -o "$work/ahead.json"
grep -q '"ahead": 1' "$work/ahead.json" || fail "a plan without ahead"
run 0 check --cluster "$work/cluster.json" --model "$work/config.json" \
	--plan "$work/ahead.json"
for other in "--schedule gpipe" "--overlap send"; do
	# shellcheck disable=SC2086
	run 6 search --cluster "$work/cluster.json" \
		--model "$work/config.json" -g 96 -s 2048 --ahead 1 $other
	says "--ahead: 1: wanted 0 with the ${other#--}"
done

# ---- what an hour costs, if all devices in use have a price ----

grep -q price "$work/out" && fail "a price of nothing"
sed 's/"memory_gib"/"price": 2.5, &/' "$work/cluster.json" \
	>"$work/priced.json"
run 0 simulate --cluster "$work/priced.json" --model "$work/config.json" \
	--plan "$work/symmetric.json"
says "price of the devices in use: 30 an hour"
sed 's/"memory_gib": 40/"price": -1, &/' "$work/cluster.json" \
	>"$work/priced.json"
run 6 simulate --cluster "$work/priced.json" --model "$work/config.json" \
	--plan "$work/symmetric.json"
says "devices.a.price: -1: wanted a number from 0"

# ---- objectives and limits ----

run 6 search "$@" -g 96 -s 2048 --objective tokens-per-price
says "devices.a.price: missing: wanted with --objective or --max-price"
run 6 search "$@" -g 96 -s 2048 --objective speed
says "--objective: speed: wanted time, price or tokens-per-price"
run 6 search "$@" -g 96 -s 2048 --max-devices 4 --symmetric
says "--symmetric: wanted without --objective and limits"
# b is half as fast as a, and costs a tenth.
sed 's/"memory_gib": 40/"price": 10, "watts": 400, &/
	s/"memory_gib": 24/"price": 1, "watts": 300, &/' "$work/cluster.json" \
	>"$work/prices.json"
objective() # OPTION...
{
	run 0 search --cluster "$work/prices.json" \
		--model "$work/config.json" -g 96 -s 2048 --rounds 4 "$@" \
		-o "$work/objective.json"
	grep -o '"step_s": [0-9.]*\|"price_per_hour": [0-9.]*' \
		"$work/objective.json" | tr -d '\n' >"$work/values"
	step=$(sed 's/.*"step_s": \([0-9.]*\).*/\1/' "$work/values")
	price=$(sed 's/.*"price_per_hour": \([0-9.]*\).*/\1/' "$work/values")
}
holds() # an expression of awk of step and price
{
	awk -v step="$step" -v price="$price" -v fast="$fast" \
		-v all="$all" "BEGIN { exit !($1) }" ||
		fail "step $step of $fast s, price $price of $all: not $1"
}
objective
fast=$step all=$price
holds "price > 80"
objective --objective tokens-per-price
says "by tokens-per-price, of "
holds "step * price < 0.5 * fast * all && step > fast"
objective --objective price
holds "price <= 4"
cheap=$step least=$price
objective --objective price --max-step "$(awk -v s="$cheap" -v f="$fast" \
	'BEGIN { print (s + f) / 2 }')"
holds "price > $least && price < all && step < $cheap"
objective --max-price 50
holds "price <= 50 && price > 30 && step > fast"
# 0.1 + 0.1 + 0.1 is more than 0.3.
sed 's/"price": 10,/"price": 0.1,/' "$work/prices.json" >"$work/tenths.json"
run 0 search --cluster "$work/tenths.json" --model "$work/config.json" -g 96 \
	-s 2048 --rounds 1 --max-price 0.3 -o "$work/objective.json"
grep -q '"price_per_hour": 0.3' "$work/objective.json" ||
	fail "a price that reaches its limit"
objective --max-devices 5
[ "$(tr -d ' \n' <"$work/objective.json" |
	grep -o '"idle":\[[^]]*\]' | tr -cd , | wc -c)" -ge 6 ] ||
	fail "more than 5 of 12 devices"
objective --max-power 1300
says "by time, of "
holds "price <= 31"
run 7 search --cluster "$work/prices.json" --model "$work/config.json" \
	-g 96 -s 2048 --rounds 1 --max-step 0.001
says "there are plans, but none within the limits"

# ---- devices are lost ----

lose() # PLAN LIST OPTION...
{
	run 0 replan --cluster "$work/cluster.json" \
		--model "$work/config.json" --plan "$1" --lost "$2" \
		--rounds 4 -o "$work/left.json"
	run 0 check --cluster "$work/cluster.json" \
		--model "$work/config.json" --plan "$work/left.json"
}
ranks_of()
{
	tr -d ' \n' <"$1" | grep -o '"ranks":\[[^]]*\]' | tr -cs '0-9' '\n' |
		grep . | sort -n | tr '\n' ' '
}
set -- --cluster "$work/cluster.json" --model "$work/config.json"
# Two alike pipelines of two stages, and one device that has all layers.
cat >"$work/lines.json" <<EOF
{"version": 1, "sequence": 512, "global_batch": 24, "pipelines": [
 {"micro_batch": 1, "micro_batches": 8, "stages": [
  {"ranks": [0, 1], "tp": 2, "layers": [0, 8]},
  {"ranks": [2, 3], "tp": 2, "layers": [9, 17]}]},
 {"micro_batch": 1, "micro_batches": 8, "stages": [
  {"ranks": [4, 5], "tp": 2, "layers": [0, 8]},
  {"ranks": [6, 7], "tp": 2, "layers": [9, 17]}]},
 {"micro_batch": 1, "micro_batches": 8, "stages": [
  {"ranks": [8, 9, 10, 11], "tp": 4, "layers": [0, 17], "recompute": true}]}]}
EOF
run 0 check "$@" --plan "$work/lines.json"
lose "$work/lines.json" 2,4-5
case " $(ranks_of "$work/left.json")" in
*" 2 "* | *" 4 "* | *" 5 "*) fail "lost ranks are used" ;;
esac
run 0 replan "$@" --plan "$work/lines.json" --lost 4-7 --rounds 4
says "GiB of weights and optimizer move"
grep -q "come from a" "$work/out" && fail "other pipelines have all of it"
grep -q idle "$work/out" && fail "lost devices are no idle ones"
# But of the optimizer, if ZeRO has spread it.
sed 's/"version": 1/&, "zero": 1/' "$work/lines.json" >"$work/spread.json"
run 0 replan "$@" --plan "$work/spread.json" --lost 4-7 --rounds 4
says "were on lost devices only: they come from a checkpoint"
run 0 replan "$@" --plan "$work/lines.json" --lost 2,6,8-11 --rounds 4
says "were on lost devices only: they come from a checkpoint"
for wrong in 12 3-x 7-5 far; do
	run 6 replan "$@" --plan "$work/lines.json" --lost 1,$wrong
	says "--lost: $wrong: wanted the name of a host, or ranks from 0 to 11"
done
run 6 replan "$@" --plan "$work/lines.json"
says "--lost is needed"
run 7 replan "$@" --plan "$work/lines.json" --lost 0-11 --rounds 1
says "no plan fits"

# ---- interleaved plans ----

set -- --cluster "$work/cluster.json" --model "$work/config.json"
cat >"$work/chunks.json" <<EOF
{"version": 1, "sequence": 2048, "global_batch": 8, "schedule": "interleaved",
 "pipelines": [{"micro_batch": 1, "micro_batches": 8, "interleave": 2,
  "stages": [{"ranks": [0, 1], "tp": 2, "layers": [0, 4]},
   {"ranks": [2, 3], "tp": 2, "layers": [5, 8]},
   {"ranks": [0, 1], "tp": 2, "layers": [9, 12]},
   {"ranks": [2, 3], "tp": 2, "layers": [13, 17]}]}]}
EOF
run 0 check "$@" --plan "$work/chunks.json"
run 0 explain "$@" --plan "$work/chunks.json" --svg "$work/chunks.svg" \
	--trace "$work/trace.json"
says "interleave 2: stages s and s + 2 are on the same devices"
says "interleaved, overlap p2p"
# A row of each team; of each micro-batch 6 messages and 8 passes.
[ "$(grep -c '0\.[01] a x 2, .* and 1 more' "$work/chunks.svg")" -eq 2 ] ||
	fail "chunks.svg: not two rows"
[ "$(grep -c '<title>' "$work/chunks.svg")" -eq $((8 * (6 + 8))) ] ||
	fail "chunks.svg: events"
[ "$(grep -c '"dur": .*"tid": [0-3]}' "$work/trace.json")" -eq \
	$((8 * (6 + 8))) ] || fail "trace.json: events"
run 0 groups "$@" --plan "$work/chunks.json"
says "pipeline 0, 1 to 2: ranks 2-3 to 0-1"
run 0 simulate "$@" --plan "$work/chunks.json" --export megatron
says "--pipeline-model-parallel-size 2 "
says '--pipeline-model-parallel-layout "Et*4|t*4|t*4|t*4L"'
run 0 simulate "$@" --plan "$work/chunks.json" --export torch
says '"interleave": 2'
[ "$(grep -c '"stage": ' "$work/out")" -eq 8 ] || fail "torch: not 8 chunks"
run 7 simulate "$@" --plan "$work/chunks.json" --export flagscale
says "--export flagscale: pipelines[0].interleave: 2: wanted 1"
run 7 simulate "$@" --plan "$work/chunks.json" --cost flashflex
says "--cost: flashflex: wanted the schedule 1f1b or gpipe, not interleaved"
# Of two such pipelines one is left, as it was: nothing moves.
cat >"$work/two.json" <<EOF
{"version": 1, "sequence": 2048, "global_batch": 16, "schedule": "interleaved",
 "pipelines": [{"micro_batch": 1, "micro_batches": 8, "interleave": 2,
  "stages": [{"ranks": [0, 1], "tp": 2, "layers": [0, 4]},
   {"ranks": [2, 3], "tp": 2, "layers": [5, 8]},
   {"ranks": [0, 1], "tp": 2, "layers": [9, 12]},
   {"ranks": [2, 3], "tp": 2, "layers": [13, 17]}]},
  {"micro_batch": 1, "micro_batches": 8, "interleave": 2,
  "stages": [{"ranks": [4, 5], "tp": 2, "layers": [0, 4]},
   {"ranks": [6, 7], "tp": 2, "layers": [5, 8]},
   {"ranks": [4, 5], "tp": 2, "layers": [9, 12]},
   {"ranks": [6, 7], "tp": 2, "layers": [13, 17]}]}]}
EOF
run 0 replan "$@" --plan "$work/two.json" --lost 4,8-11 --rounds 4 \
	-o "$work/again.json"
run 0 check "$@" --plan "$work/again.json"
run 0 replan "$@" --plan "$work/two.json" --lost 4-11 --rounds 4
says "of weights and optimizer move"
run 7 check "$@" --plan "$work/chunks.json" --schedule gpipe
says "chunks.json: pipelines[0].interleave: 2: wanted 1 with the schedule gpipe"
run 7 check "$@" --plan "$work/plan.json" --schedule interleaved
says "plan.json: schedule: interleaved: wanted 1f1b or gpipe"
sed 's/"interleave": 2/"interleave": 65/' "$work/chunks.json" \
	>"$work/many.json"
run 6 check "$@" --plan "$work/many.json"
says "many.json: pipelines[0].interleave: 65: wanted a whole number from 1 to 64"
run 0 search "$@" -g 16 -s 2048 --rounds 2 --interleave any -o "$work/any.json"
run 0 check "$@" --plan "$work/any.json"
for wrong in 0 65 all 2x; do
	run 6 search "$@" -g 16 -s 2048 --interleave $wrong
	says "--interleave: $wrong: wanted any, or a whole number from 1 to 64"
done
run 6 search "$@" -g 16 -s 2048 --interleave 2 --ahead 1
says "--interleave: 2: wanted 1 with --ahead 1"
run 6 search "$@" -g 16 -s 2048 --interleave any --overlap none
says "--interleave: any: wanted 1 with the overlap none"
run 6 search "$@" -g 16 -s 2048 --interleave 4 --schedule gpipe
says "--interleave: 4: wanted 1 with the schedule gpipe"
run 6 search "$@" -g 16 -s 2048 --schedule interleaved
says "--schedule: interleaved: wanted 1f1b, gpipe or zb-h1 with search"

# Gradients of weights put off: less to wait for, and a row of passes more.
cat >"$work/late.json" <<EOF
{"version": 1, "sequence": 2048, "global_batch": 8, "schedule": "zb-h1",
 "pipelines": [{"micro_batch": 1, "micro_batches": 8,
  "stages": [{"ranks": [0, 1], "tp": 2, "layers": [0, 8]},
   {"ranks": [2, 3], "tp": 2, "layers": [9, 17]}]}]}
EOF
run 0 check "$@" --plan "$work/late.json"
run 0 simulate "$@" --plan "$work/late.json" --svg "$work/late.svg"
says "zb-h1, overlap p2p"
[ "$(grep -c '<title>weights' "$work/late.svg")" -eq 16 ] ||
	fail "late.svg: gradients of weights"
run 7 simulate "$@" --plan "$work/late.json" --export megatron
says "--export megatron: schedule: zb-h1: wanted 1f1b"
run 6 search "$@" -g 16 -s 2048 --schedule zb-h1 --overlap none
says "--schedule: zb-h1: wanted 1f1b or gpipe with the overlap none"

# ---- no option is taken and not used ----

for other in "--trace x" "--svg x" "--export torch" "--plan x" "--device a" \
	"--cost flashflex"; do
	# shellcheck disable=SC2086
	run 6 search --cluster "$work/cluster.json" \
		--model "$work/config.json" -g 96 -s 2048 $other
	says "${other%% *}: not an option of search, but of "
done
run 6 simulate --cluster "$work/cluster.json" --model "$work/config.json" \
	--plan "$work/plan.json" -g 96
says "--global-batch: not an option of simulate, but of search"
run 6 check --cluster "$work/cluster.json" --model "$work/config.json" \
	--plan "$work/plan.json" --json
says "--json: not an option of check, but of explain, replan, search, simulate"
run 6 simulate --cluster "$work/cluster.json" --model "$work/config.json" \
	--plan "$work/plan.json" --cost flashflex --svg "$work/x.svg"
says "--cost: flashflex: wanted without --trace"
run 0 explain --cluster "$work/cluster.json" --model "$work/config.json" \
	--plan "$work/plan.json" -o "$work/explained"
grep -q "where it goes" "$work/explained" || fail "--out of explain"

# ---- what messages cost ----

messages() # TEXT OPTION...: with that of a profile, and a plan with overlap send
{
	sed '$s/}$/, "messages": '"$1"'}/' "$data/mit_profile.json" \
		>"$work/messages.json"
	shift
	"$plan" simulate --json --cluster "$data/mit_cluster.json" \
		--model "$data/opt_350m.json" --profile "$work/messages.json" \
		--plan "$data/mit_n4_d2.json" "$@" >"$work/out" 2>"$work/err"
	sed -n 's/^ *"step_s": \([0-9.]*\).*/\1/p' "$work/out"
}

free=$(messages '{"side_s": 0, "buffer_bytes": 1e9}')
usual=$(messages '{}')
held=$(messages '{"side_s": 0.01, "buffer_bytes": 0}')
beside=$(messages '{"side_s": 0.01, "buffer_bytes": 0}' --overlap p2p)
awk -v f="$free" -v u="$usual" -v h="$held" -v b="$beside" \
	'BEGIN { exit !(0 < b && b <= f && f < u && u < h) }' ||
	fail "messages: $beside, $free, $usual, $held s: wanted more each time"
messages '{"side_s": -1}' >/dev/null
says 'messages.json: messages.side_s: -1: wanted'
messages '{"side": 1}' >/dev/null
says 'messages.side: 1: wanted no such key'

# ---- buckets of gradients ----

bucket() # BYTES: the step of a plan of four pipelines whose gradients are 212 MB
{
	sed "s/\"zero\": 0/\"zero\": 0, \"bucket_bytes\": $1/" \
		"$data/mit_n4_d4.json" >"$work/bucket.json"
	"$plan" simulate --json --cluster "$data/mit_cluster.json" \
		--model "$data/opt_350m.json" --profile "$data/mit_profile.json" \
		--plan "$work/bucket.json" >"$work/out" 2>"$work/err"
	sed -n 's/^ *"step_s": \([0-9.]*\).*/\1/p' "$work/out"
}

[ "$(bucket 0)" = "$(bucket 2e9)" ] || fail "bucket: another step for one"
awk -v a="$(bucket 0)" -v b="$(bucket 1e6)" 'BEGIN { exit !(a < b) }' ||
	fail "bucket: no longer with 212 of them"
bucket 5 >/dev/null
says 'bucket_bytes: 5: wanted a number from 1024 on'

# ---- what a backward pass needs beside activations ----

memory() # WORK
{
	sed '$s/}$/, "work": '"$1"'}/' "$data/mit_profile.json" \
		>"$work/work.json"
	"$plan" simulate --json --cluster "$data/mit_cluster.json" \
		--model "$data/opt_350m.json" --profile "$work/work.json" \
		--plan "$data/mit_n4_d2.json" >"$work/out" 2>"$work/err"
	grep -o '"memory_bytes": [0-9]*' "$work/out" | head -n 1 |
		grep -o '[0-9]*$'
}

# Two sequences of a block of 67125248 bytes.
[ "$(($(memory 3) - $(memory 1)))" -eq $((2 * 2 * 67125248)) ] ||
	fail "work 1: $(memory 1), 3: $(memory 3)"
memory -1 >/dev/null
says 'work.json: work: -1: wanted'

# ---- plans that HARP measured ----

# Their order is right: of those of one model, the fastest one first, and what
# is the same plan to us alike. All within 20 %, without their efficiencies.
if bash "$data/../study" "$plan" harp >"$work/out" 2>"$work/err"; then
	awk -F '|' '/^\| [0-9.]*B,/ {
		took[++n] = $4
		if ($5 < 0.8 || $5 > 1.2)
			bad = 1
	}
	END { exit bad || n != 4 || took[1] >= took[2] || took[2] != took[3] }
	' "$work/out" || fail "the plans of HARP"
else
	fail "study harp: status $?"
fi
exit $bad
