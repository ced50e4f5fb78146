#!/usr/bin/env bash
# Installs a package, uses it, removes and purges it, and looks for leftovers:
# package.sh PACKAGE DIRECTORY
# In a mount namespace whose /usr, /etc and databases are a layer above those of the machine, so
# that the machine does not change.
set -euo pipefail
package=$1 directory=$2
if [ "${3:-}" != inside ]; then
    exec unshare --mount "$0" "$package" "$directory" inside
fi
mount --make-rprivate /
for top in usr etc var/lib/dpkg var/cache var/log; do
    mkdir -p "$directory/layers/$top/upper" "$directory/layers/$top/work"
    layer=$directory/layers/$top
    mount -t overlay overlay -o "lowerdir=/$top,upperdir=$layer/upper,workdir=$layer/work" "/$top"
done
# Files that dpkg may keep of a removed package: its backups and caches.
list() { find /usr /etc /var/lib/dpkg/info -xdev ! -name 'mandb*' ! -name index.db | sort; }
export DEBIAN_FRONTEND=noninteractive
list > "$directory/before"

dpkg --install "$package"
[ "$(command -v shale)" = /usr/bin/shale ]
[ "$(shale --version)" = "shale $(dpkg-query -W -f '${Version}' shale)" ]
dpkg --verify shale
man -w shale shale-mount mount.fuse.shale > /dev/null
[ -d /etc/shale ]

mkdir "$directory/mnt"
mount -t fuse.shale -o memory=64M "$directory/store" "$directory/mnt"
seq 1 300000 > "$directory/mnt/file"
shale doctor "$directory/mnt" > /dev/null
umount "$directory/mnt"
# The helper waits, so the store is free at once.
shale fsck "$directory/store"
shale export "$directory/store" "$directory/copy"
seq 1 300000 | cmp - "$directory/copy/file"

dpkg --remove shale
[ ! -e /usr/bin/shale ] && [ ! -e /usr/sbin/mount.fuse.shale ]
dpkg --purge shale
list > "$directory/after"
diff "$directory/before" "$directory/after"
