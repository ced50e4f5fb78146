#!/usr/bin/env bash
# Boots systemd as process 1 of new namespaces: boot.sh DIRECTORY CGROUP
# DIRECTORY/etc and DIRECTORY/usr are laid over those of the machine, for systemd alone; CGROUP is
# a directory in a cgroup2 hierarchy. Only the units in DIRECTORY/etc/systemd/system and those made
# from /etc/fstab exist, and nothing outside the directory above DIRECTORY can be written, so that
# the machine itself is never touched. Everything ends with this process.
set -euo pipefail
directory=$1 cgroup=$2
if [ "${3:-}" != inside ]; then
    echo $$ > "$cgroup/cgroup.procs"
    exec unshare --mount --pid --fork --uts --ipc --cgroup --kill-child "$0" "$directory" "$cgroup" inside
fi
work=$(dirname "$directory")
mount --make-rprivate /
mount --bind "$work" "$work"
mount -o remount,bind,ro /
mount -t proc proc /proc
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
# The cgroup namespace begins at CGROUP.
umount -l /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -o remount,bind,ro /sys
for top in run tmp; do
    mount -t tmpfs -o mode=755 tmpfs "/$top"
done
for top in etc usr; do
    mkdir -p "$directory/$top-work"
    mount -t overlay overlay -o "lowerdir=/$top,upperdir=$directory/$top,workdir=$directory/$top-work" "/$top"
done
# As systemd finds it on a real machine.
mount --make-rshared /
generators=/etc/systemd/generators
mkdir -p $generators
ln -s /lib/systemd/system-generators/systemd-fstab-generator $generators
exec env -i container=shale-tests PATH="$PATH" SHALE_TEST_DIR="${SHALE_TEST_DIR:-}" \
    SYSTEMD_UNIT_PATH=/etc/systemd/system:/run/systemd/generator SYSTEMD_GENERATOR_PATH=$generators \
    /lib/systemd/systemd --system --unit=test.target --log-target=console --show-status=no
