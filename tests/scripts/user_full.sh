#!/usr/bin/env bash
# An ordinary user fills a device: user_full.sh SHALE DIRECTORY DEVICE
# DEVICE is a directory on a small file system, in which the user may write.
# In a mount namespace where /dev/fuse is open to all, as udev leaves it on every machine.
set -euo pipefail
shale=$1 directory=$2 device=$3
case ${4:-} in
    '')
        exec unshare --mount "$0" "$shale" "$directory" "$device" inside
        ;;
    inside)
        mount --make-rprivate /
        mknod -m 666 "$directory/fuse" c 10 229
        mount --bind "$directory/fuse" /dev/fuse
        install -d -o 65534 -g 65534 "$directory/home" "$device/own"
        mount --bind /dev/null /etc/fuse.conf
        exec setpriv --reuid=65534 --regid=65534 --clear-groups "$0" "$shale" "$directory/home" "$device/own" user
        ;;
esac

cd "$directory"
mkdir mnt
"$shale" mount "$device/store" mnt
# dd checks `write` and stops at an error; it counts the accepted bytes.
if dd if=/dev/urandom of=mnt/file bs="${PIECE:-8k}" count=1G iflag=count_bytes status=none 2> told; then exit 1; fi
grep -q 'No space left on device' told
accepted=$(stat -c %s mnt/file)
sum=$(sha256sum < mnt/file)
"$shale" unmount mnt
"$shale" mount "$device/store" mnt
[ "$(stat -c %s mnt/file)" = "$accepted" ]
[ "$(sha256sum < mnt/file)" = "$sum" ]
echo "$accepted bytes accepted"
rm mnt/file
"$shale" unmount mnt
