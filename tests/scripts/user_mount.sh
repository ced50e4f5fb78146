#!/usr/bin/env bash
# An ordinary user mounts in a private directory, works there and unmounts:
# user_mount.sh SHALE DIRECTORY
# In a mount namespace where /dev/fuse is open to all, as udev leaves it on every machine.
set -euo pipefail
shale=$1 directory=$2
case ${3:-} in
    '')
        exec unshare --mount "$0" "$shale" "$directory" inside
        ;;
    inside)
        mount --make-rprivate /
        mknod -m 666 "$directory/fuse" c 10 229
        mount --bind "$directory/fuse" /dev/fuse
        install -d -o 65534 -g 65534 "$directory/home"
        mount --bind /dev/null /etc/fuse.conf
        as_user() { setpriv --reuid=65534 --regid=65534 --clear-groups "$0" "$shale" "$directory/home" "$1"; }
        as_user work
        # Private: no other user gets in, not even root.
        if ls "$directory/home/mnt" 2> /dev/null; then exit 1; fi
        as_user rest
        exit
        ;;
esac

cd "$directory"
if [ "$3" = work ]; then
    mkdir mnt shared
    "$shale" mount --memory 64M store mnt
    [ "$(stat -c %u mnt)" = 65534 ]
    mkdir mnt/run
    seq 1 400000 > mnt/run/file
    ln -s file mnt/run/link
    "$shale" settle --wait mnt
    "$shale" stat --json mnt > /dev/null
    "$shale" gc --wait mnt
    "$shale" doctor mnt
    if refused=$("$shale" mount -o allow_other other shared 2>&1); then exit 1; fi
    grep -q user_allow_other <<< "$refused"
    exit
fi

"$shale" unmount mnt
if mountpoint -q mnt; then exit 1; fi
"$shale" fsck store
"$shale" export store copy
seq 1 400000 | cmp - copy/run/file

# A daemon that was killed: the user clears the mount and mounts again.
"$shale" mount store mnt
kill -9 "$(cut -d' ' -f1 store/lock)"
until ! stat mnt > /dev/null 2>&1; do sleep 0.01; done
"$shale" unmount mnt
"$shale" mount store mnt
seq 1 400000 | cmp - mnt/run/file
"$shale" unmount mnt

# The store's name goes through fusermount3 between other options.
for odd in 'a,b' 'a\b' 'a\,b' 'a b'; do
    "$shale" mount "$odd" mnt
    [ "$(findmnt -rn -o SOURCE mnt)" = "$(printf %s "$PWD/$odd" | sed 's/\\/\\x5c/g; s/ /\\x20/g')" ]
    "$shale" unmount mnt
    "$shale" fsck "$odd"
done
