#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# scripts/deb makes Debian packages of this build, of which lintian has nothing
# to say. Installed by dpkg, the tools run, a C program is compiled and linked,
# and nothing but dicomm-run finds the library that is called NCCL; purged, they
# leave nothing. All of that in an overlay of this machine, which stays as it
# was. Skipped, with the reason, where that cannot be.
skip() {
	echo "$*"
	exit 77
}
top=$(cd "${srcdir:-.}" && pwd)
cd "${top_builddir:-.}" || exit 99
build=$(pwd)
[ -e .libs/libdicomm.so.1 ] && [ -e .libs/libdicomm.a ] && [ -x dicomm-perf ] ||
	skip "this build lacks a library, or the tools"
nm -D .libs/libdicomm.so.1 | grep -q ' U __[at]san_' &&
	skip "this build has a sanitizer, which no package brings along"
[ -w "$top" ] && [ -x "$top/scripts/deb" ] || skip "not a checkout"
for program in dh chrpath lintian unshare; do
	command -v $program >/dev/null || skip "$program is missing"
done
out=$(mktemp -d) || exit 99
trap 'rm -rf "$out"' EXIT
# The mounts are gone when the last process of the name space is.
overlay() { # COMMAND, which finds the overlay at $out/root
	unshare -m -p -f --kill-child --mount-proc sh -ec '
		mount -t tmpfs none "$0/mnt"
		mkdir "$0/mnt/upper" "$0/mnt/work"
		mount -t overlay overlay -o \
			"lowerdir=/,upperdir=$0/mnt/upper,workdir=$0/mnt/work" \
			"$0/root"
		mount --rbind /dev "$0/root/dev"
		mount -t proc proc "$0/root/proc"
		exec "$@"' "$out" "$@"
}
mkdir "$out/mnt" "$out/root"
overlay true 2>"$out/log" || skip "no overlay of this machine: $(cat "$out/log")"

"$top/scripts/deb" "$build/debs" "$build" >"$out/log" 2>&1 || {
	cat "$out/log"
	exit 1
}
# There is no bug of Debian that asks for these packages.
lintian --allow-root --fail-on error,warning \
	--suppress-tags initial-upload-closes-no-bugs \
	"$build"/debs/*.deb >"$out/log" 2>&1 || {
	cat "$out/log"
	exit 1
}
cp "$build"/debs/*.deb "$out"
cp "$top/examples/several_ranks_one_process.c" "$out/several.c"

cat >"$out/try" <<'END'
cd "$1"
unset LD_LIBRARY_PATH LIBDICOMM_FILE PKG_CONFIG_PATH
dpkg --force-depends -i ./*.deb >log 2>&1 || { cat log; exit 1; }
bad=0
expect() { # TEXT COMMAND...
	text=$1
	shift
	"$@" >log 2>&1 && { [ -z "$text" ] || grep -qF -e "$text" log; } && return
	echo "not '$text': $*"
	cat log
	bad=1
}
expect 'library    /usr/lib/' dicomm-info --version
expect '# Out of bounds values : 0 OK' \
	dicomm-perf allreduce --ranks 2 -b 8 -e 64K -f 16 -n 2 -w 1
expect '# Collective test starting: all_reduce_perf' \
	all_reduce_perf --ranks 2 -b 8 -e 8 -n 1 -w 0
expect Usage: dicomm-plan --help
expect "/dicomm/compat (" dicomm-run true
cc -o program several.c $(pkg-config --cflags --libs dicomm) || bad=1
expect '' timeout 60 ./program
for page in man1/all_reduce_perf.1 man1/dicomm-run.1 man3/dicomm_allreduce.3; do
	[ -s /usr/share/man/$page.gz ] || { echo "no $page"; bad=1; }
done
if ldconfig -p | grep -F /dicomm/compat; then
	echo "programs find our libnccl.so.2 where they look for NCCL's"
	bad=1
fi
dpkg --purge dicomm-compat dicomm-tools libdicomm-dev libdicomm1 >log 2>&1 ||
	{ cat log; bad=1; }
if find /usr /etc /var/lib/dpkg/info -name '*dicomm*' | grep .; then
	echo "left after dpkg --purge"
	bad=1
fi
exit $bad
END
# What of this machine is called so is none of the packages'.
overlay sh -c 'find "$1"/root/usr "$1"/root/etc -name "*dicomm*" -exec rm -rf {} + &&
	mkdir "$1/root/tmp/try" && cp "$1"/*.deb "$1/try" "$1/several.c" \
		"$1/root/tmp/try" &&
	exec chroot "$1/root" sh /tmp/try/try /tmp/try' sh "$out"
