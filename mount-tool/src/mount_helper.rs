//! `mount -t fuse.shale` and fstab: mount(8) calls
//! `/sbin/mount.fuse.shale STORE MOUNTPOINT [-sfnv] [-N namespace] [-o options] [-t type]`.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::cli::MountArgs;
use crate::failure::{Failure, mount_exit};

/// Whether mount(8) called us, by the name we were called.
pub(crate) fn is_called_as(arguments: &[OsString]) -> bool {
    let name = arguments
        .first()
        .and_then(|name| Path::new(name).file_name());
    name.is_some_and(|name| name == "mount.shale" || name == "mount.fuse.shale")
}

/// Reads what mount(8) passes.
pub(crate) fn parse(arguments: &[OsString]) -> Result<MountArgs, Failure> {
    let mut args = MountArgs::default();
    let mut places: Vec<&OsStr> = Vec::new();
    let mut words = arguments.iter().skip(1);
    while let Some(word) = words.next() {
        let text = word.to_str().unwrap_or_default();
        let Some(mut letters) = text.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
            places.push(word);
            continue;
        };
        while let Some(letter) = letters.chars().next() {
            letters = &letters[letter.len_utf8()..];
            match letter {
                's' => args.sloppy = true,
                'f' => args.fake = true,
                'n' | 'v' => {}
                'o' | 't' | 'N' => {
                    let value = if letters.is_empty() {
                        words.next().and_then(|value| value.to_str())
                    } else {
                        Some(letters)
                    };
                    let value =
                        value.ok_or_else(|| usage(&format!("option -{letter} needs a value")))?;
                    match letter {
                        'o' => args.options.push(value.to_owned()),
                        'N' => return Err(usage("option -N (other namespace) is not supported")),
                        _ => {}
                    }
                    letters = "";
                }
                _ => return Err(usage(&format!("unknown option '-{letter}'"))),
            }
        }
    }
    let [store, mountpoint] = places[..] else {
        return Err(usage("a store and a mount point are needed"));
    };
    args.store = PathBuf::from(store);
    args.mountpoint = PathBuf::from(mountpoint);
    Ok(args)
}

fn usage(what: &str) -> Failure {
    Failure::new(
        mount_exit::USAGE,
        format_args!("{what}; call 'mount -t fuse.shale [-o OPTIONS] STORE MOUNTPOINT'"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn called_by_either_name() {
        assert!(is_called_as(&words("/sbin/mount.fuse.shale a b")));
        assert!(is_called_as(&words("mount.shale a b")));
        assert!(!is_called_as(&words("shale mount a b")));
        assert!(!is_called_as(&[]));
    }

    #[test]
    fn as_mount_calls_it() {
        let line = "mount.fuse.shale /store /mnt -sn -o rw,memory=1G -t fuse.shale";
        let args = parse(&words(line)).unwrap();
        assert_eq!(args.store, Path::new("/store"));
        assert_eq!(args.mountpoint, Path::new("/mnt"));
        assert_eq!(args.options, ["rw,memory=1G"]);
        assert!(args.sloppy && !args.fake && !args.foreground);
    }

    #[test]
    fn options_may_be_glued_and_come_first() {
        let args = parse(&words("mount.shale -oro -fv a b")).unwrap();
        assert_eq!(args.options, ["ro"]);
        assert!(args.fake);
    }

    #[test]
    fn wrong_calls_are_refused() {
        for line in ["m a", "m a b c", "m a b -o", "m a b -x", "m a b -N 7", "m"] {
            assert_eq!(
                parse(&words(line)).unwrap_err().status,
                mount_exit::USAGE,
                "{line}"
            );
        }
    }
}
