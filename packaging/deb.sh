#!/usr/bin/env bash
# Makes TARGET/shale_VERSION_ARCH.deb from a built command: deb.sh VERSION COMMAND TARGET
# Needs dpkg-deb, strip, python3 and cargo (for the licences of what is linked in).
set -euo pipefail
cd "$(dirname "$0")/.."
version=$1 command=$2 target=$3
maintainer=${DEB_MAINTAINER:-ShaleFS maintainers <maintainers@shalefs.invalid>}
architecture=$(dpkg --print-architecture)
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2> /dev/null || date +%s)}
export SOURCE_DATE_EPOCH=$epoch
umask 022

tree=$target/deb
rm -rf "$tree"
mkdir -p "$tree/DEBIAN" "$tree/etc/shale"
make --no-print-directory -s install SHALE="$command" DESTDIR="$tree" PREFIX=/usr \
    ZSHDIR=/usr/share/zsh/vendor-completions
strip --strip-all --remove-section=.comment --remove-section=.note "$tree/usr/bin/shale"

# Documents as Debian requires: copyright, Debian changelog, compressed manual pages.
doc=$tree/usr/share/doc/shale
packaging/copyright.py ${FEATURES:-} > "$doc/copyright"
cat > "$doc/changelog" << END
shale ($version) unstable; urgency=medium

  * See CHANGELOG.md for what users notice.

 -- $maintainer  $(date -u -R -d "@$epoch")
END
gzip -9n "$doc/changelog"
find "$tree/usr/share/man" -type f -exec gzip -9n {} +
find "$tree/usr/share/man" -type l | while read -r link; do
    ln -s "$(readlink "$link").gz" "$link.gz"
    rm "$link"
done

# The newest version of the C library that a used symbol needs.
glibc=$(grep -aoE 'GLIBC_2\.[0-9]+' "$tree/usr/bin/shale" | sed 's/GLIBC_//' | sort -Vu | tail -n 1)
size=$(du -k -s --apparent-size "$tree" | cut -f 1)
cat > "$tree/DEBIAN/control" << END
Package: shale
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Installed-Size: $size
Depends: libc6 (>= $glibc), libgcc-s1 (>= 4.2), fuse3
Section: admin
Priority: optional
Description: compressing file system for simulation and observation data
 ShaleFS is a FUSE file system. Programs read and write ordinary NetCDF and HDF5
 files in an ordinary directory; what reaches the disk is compressed by
 byte-columns, which suits arrays of floating-point numbers, checksummed, and
 packed into large files.
 .
 This package has the command shale, helpers for mount(8) and fstab, and a unit
 for systemd.
END
for script in postinst postrm; do
    cat > "$tree/DEBIAN/$script" << 'END'
#!/bin/sh
set -e
# So that systemd sees the unit come or go. Mounts are left alone.
if [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload > /dev/null || true
fi
END
    chmod 755 "$tree/DEBIAN/$script"
done
(cd "$tree" && find usr -type f -print0 | sort -z | xargs -0 md5sum > DEBIAN/md5sums)
find "$tree" -newermt "@$epoch" -exec touch --no-dereference --date="@$epoch" {} +
package=$target/shale_${version}_$architecture.deb
dpkg-deb --root-owner-group -Zxz --build "$tree" "$package"
rm -rf "$tree"
