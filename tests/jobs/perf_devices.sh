#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# dicomm-perf on ranks with unlike devices: data checked, devices shown, staged
# bytes told. The devices are mocks of our tests, and PoCL's where there is one;
# the times say nothing about a GPU.
. "${srcdir:-.}/tests/jobs/perf.sh"
if [ ! -e tests/mock/libcuda.so ]; then
	echo "the mock drivers are not built"
	exit 77
fi
ln -s "$PWD/tests/mock/libcuda.so" "$out/libcuda.so.1"
ln -s "$PWD/tests/mock/libnvrtc.so" "$out/libnvrtc.so.12"
ln -s "$PWD/tests/mock/libhip.so" "$out/libamdhip64.so.7"
ln -s "$PWD/tests/mock/libhiprtc.so" "$out/libhiprtc.so.7"
ln -s "$PWD/tests/mock/libze.so" "$out/libze_loader.so.1"
LD_LIBRARY_PATH=$out${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
perf 0 allreduce -b 8 -e 64K -f 64 -n 3 --ranks 3 --traffic \
	--device 0=cuda:0,2=hip:1
has 'Rank  0 .* cuda:0 .*NVIDIA'
has 'Rank  1 .* host '
has 'Rank  2 .* hip:1 .*AMD'
has 'Out of bounds values : 0 OK'
has 'staged [1-9]'
perf 0 alltoall -b 1K -e 1K -n 3 -d half --ranks 2 -g 2 --traffic --device cuda:1
has 'staged 0 B'
has 'Out of bounds values : 0 OK'
perf 0 allreduce -b 4K -e 4K -n 3 --ranks 2 --traffic --device ze:0
has 'Rank  1 .* ze:0 '
has 'staged 0 B'
has 'Out of bounds values : 0 OK'
DICOMM_STAGING=never perf 0 allreduce -b 8 -e 64K -f 64 -n 3 --ranks 2 \
	--traffic --mem alloc --device 1=cuda:0
has 'staged 0 B .* mapped [1-9]'
has 'Out of bounds values : 0 OK'
DICOMM_STAGING=never perf 3 allreduce -b 8 -e 8 --ranks 2 \
	--device 0=cuda:0,1=hip:0
has 'no direct path between rank 0 (cuda:0) and rank 1 (hip:0)'
MOCK_LOADING=lazy perf 0 broadcast -b 4K -e 4K -n 3 --ranks 2 --device cuda:0
has 'CUDA_MODULE_LOADING=EAGER'
# Without kernels that compare.
MOCK_IMAGES=refused MOCK_COMPILER=broken DICOMM_STAGING=never perf 0 broadcast \
	-b 4K -e 4K -n 3 --ranks 2 --device cuda:0
has 'Out of bounds values : 0 OK'
has 'rank 1: the host checks what its device received'
perf 6 allreduce --ranks 1 --device 0=,1=host
has 'not DEVICE, nor RANK=DEVICE'
if ./dicomm-info --devices | grep -q 'opencl:0'; then
	perf 0 reduce_scatter -b 4K -e 4K -n 3 --ranks 3 --traffic \
		--device 0=opencl:0,1=host,2=opencl:0
	has 'staged 0 B'
fi
# Between hosts it measures what lies in host memory, whatever the ranks have.
DICOMM_DEVICE=cuda:0 perf 0 links --ranks 2 --seconds 0.002
has '^rank1 '
./dicomm-info --paths >"$out/table" 2>"$out/errors"
has 'path *host, host: host memory$'
has 'path *cuda:0, cuda:1: ipc$'
has 'path *host, cuda:0: mapped, the host copies or reduces .*; not ipc: the host does not map .*'
has 'path *cuda:0, hip:1: staged; not ipc: cuda and hip do not map .*; not mapped: neither is the host; not rdma: '
why=$(./dicomm-info --transports |
	sed -n 's/^transport *verbs *not usable: //p')
if [ "$why" ]; then
	has "path *cuda:0, hip:1: .*; not rdma: no transport reaches the memory of cuda:0 (verbs: $why"
fi
DICOMM_TRANSPORTS=shm ./dicomm-info --paths >"$out/table" 2>"$out/errors"
if [ "$why" ]; then
	has 'path *hip:0, ze:0: .*; not rdma: no transport reaches the memory of hip:0 (verbs: DICOMM_TRANSPORTS leaves it out'
fi
./dicomm-info --devices >"$out/table" 2>"$out/errors"
has 'device *cuda:1 *NVIDIA .*mock'
has 'device *ze:1 *Intel .*mock'
exit $bad
