//! The mounts of this machine, from `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The type under which the kernel lists our mounts.
pub(crate) const FILE_SYSTEM: &str = "fuse.shale";

/// Where the kernel lists mounts.
pub(crate) const MOUNTINFO: &str = "/proc/self/mountinfo";

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// `major:minor`; several mounts of one file system share it.
    pub(crate) device: String,
    /// The directory of the file system that is mounted; not `/` for a bind mount of a part.
    pub(crate) root: PathBuf,
    pub(crate) mountpoint: PathBuf,
    pub(crate) file_system: String,
    /// For a ShaleFS mount the store.
    pub(crate) source: PathBuf,
    /// Of the mount and of the file system.
    pub(crate) options: Vec<String>,
}

impl Mount {
    pub(crate) fn is_shale(&self) -> bool {
        self.file_system == FILE_SYSTEM
    }

    /// Whether nothing can be written through it.
    pub(crate) fn is_read_only(&self) -> bool {
        self.options.iter().any(|option| option == "ro")
    }

    /// Whether it shows only a part of its file system.
    pub(crate) fn is_part(&self) -> bool {
        self.root != Path::new("/")
    }

    /// Whether it is an automount point.
    pub(crate) fn is_automount(&self) -> bool {
        self.file_system == "autofs"
    }
}

/// [`MOUNTINFO`] cannot be read.
#[derive(Debug)]
pub(crate) struct Unreadable(pub(crate) io::Error);

/// All mounts of this mount namespace, in the order they were made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mounts(Vec<Mount>);

impl Mounts {
    pub(crate) fn read() -> Result<Self, Unreadable> {
        let text = std::fs::read(MOUNTINFO).map_err(Unreadable)?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &[u8]) -> Self {
        Self(text.split(|&b| b == b'\n').filter_map(parse_line).collect())
    }

    /// The mount at exactly this path; the topmost if mounts are stacked.
    pub(crate) fn at(&self, path: &Path) -> Option<&Mount> {
        self.0.iter().rev().find(|mount| mount.mountpoint == path)
    }

    /// Whether a ShaleFS mount is at exactly this path, even below another mount.
    pub(crate) fn has_shale_at(&self, path: &Path) -> bool {
        let mut here = self.0.iter().filter(|mount| mount.mountpoint == path);
        here.any(Mount::is_shale)
    }

    /// The mount whose files are at this path.
    pub(crate) fn holding(&self, path: &Path) -> Option<&Mount> {
        path.ancestors().find_map(|ancestor| self.at(ancestor))
    }

    /// A ShaleFS mount of this store.
    pub(crate) fn of_store(&self, store: &Path) -> Option<&Mount> {
        self.0
            .iter()
            .rev()
            .find(|mount| mount.is_shale() && mount.source == store)
    }

    /// A mount of the same file system. The device number alone is not enough: once free, the next
    /// mount of any file system may get it.
    pub(crate) fn showing(&self, one: &Mount) -> Option<&Mount> {
        self.0.iter().find(|mount| {
            mount.device == one.device
                && mount.file_system == one.file_system
                && mount.source == one.source
        })
    }
}

/// `36 35 98:0 /root /mnt rw,noatime shared:1 - ext4 /dev/sda rw`, with any number of optional
/// fields before the dash.
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&b| b == b' ');
    let device = String::from_utf8(fields.nth(2)?.to_owned()).ok()?;
    let root = unescape(fields.next()?);
    let mountpoint = unescape(fields.next()?);
    let mount_options = fields.next()?;
    let mut fields = fields.skip_while(|&field| field != b"-").skip(1);
    let file_system = String::from_utf8(fields.next()?.to_owned()).ok()?;
    let source = unescape(fields.next()?);
    let options = [mount_options, fields.next().unwrap_or_default()];
    let options = options.iter().flat_map(|list| list.split(|&b| b == b','));
    Some(Mount {
        device,
        root,
        mountpoint,
        file_system,
        source,
        options: options
            .map(|option| String::from_utf8_lossy(option).into_owned())
            .collect(),
    })
}

/// Undoes the kernel's escapes of blanks, newlines and backslashes, as `\040`.
pub(crate) fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        if let (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..]) =
            (first, tail)
        {
            bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
            rest = tail;
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"\
21 28 0:20 / /sys rw,nosuid shared:7 - sysfs sysfs rw
28 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
90 28 0:51 / /mnt/a\\040b rw shared:3 master:4 - fuse.shale /data/st\\134ore\\054x rw,user_id=0
91 90 0:52 / /mnt/a\\040b rw - tmpfs none rw
93 28 0:51 /a\\040file /srv/part rw - fuse.shale /data/st\\134ore\\054x rw
92 28 0:51 / /srv/copy rw - fuse.shale /data/st\\134ore\\054x rw
not a line
";

    #[test]
    fn blanks_and_backslashes_are_unescaped() {
        let mounts = Mounts::parse(TEXT);
        let mount = mounts.of_store(Path::new("/data/st\\ore,x")).unwrap();
        assert_eq!(mount.mountpoint, Path::new("/srv/copy"));
        assert!(mount.is_shale() && !mount.is_part());
        let part = mounts.at(Path::new("/srv/part")).unwrap();
        assert_eq!(part.root, Path::new("/a file"));
        assert!(part.is_part());
    }

    #[test]
    fn options_of_the_mount_and_of_the_file_system_are_found() {
        let mounts = Mounts::parse(TEXT);
        let options = &mounts.at(Path::new("/")).unwrap().options;
        assert_eq!(options[..], ["rw", "relatime", "rw"]);
    }

    #[test]
    fn the_topmost_of_stacked_mounts_is_found() {
        let mounts = Mounts::parse(TEXT);
        assert_eq!(
            mounts.at(Path::new("/mnt/a b")).unwrap().file_system,
            "tmpfs"
        );
        assert!(mounts.has_shale_at(Path::new("/mnt/a b")));
        assert!(!mounts.has_shale_at(Path::new("/")));
        assert_eq!(mounts.at(Path::new("/mnt")), None);
    }

    #[test]
    fn a_path_belongs_to_the_nearest_mount_above() {
        let mounts = Mounts::parse(TEXT);
        let of = |path| mounts.holding(Path::new(path)).unwrap().mountpoint.clone();
        assert_eq!(of("/srv/copy/x/y"), Path::new("/srv/copy"));
        assert_eq!(of("/srv/copyist"), Path::new("/"));
    }

    #[test]
    fn copies_of_a_mount_share_device_and_store() {
        let mounts = Mounts::parse(TEXT);
        let one = mounts.at(Path::new("/srv/copy")).unwrap();
        let found = mounts.showing(one).unwrap();
        assert_eq!(found.mountpoint, Path::new("/mnt/a b"));
        let later = Mounts::parse(b"93 28 0:51 / /mnt rw - fuse.shale /data/other rw\n");
        assert_eq!(later.showing(one), None);
    }

    #[test]
    fn a_lone_backslash_stays() {
        assert_eq!(unescape(b"a\\9\\04"), Path::new("a\\9\\04"));
    }
}
