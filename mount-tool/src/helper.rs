//! The command line of the helpers that mount(8) and umount(8) call, also for fstab:
//!
//! ```text
//! /sbin/mount.fuse.shale STORE MOUNTPOINT [-sfnv] [-N namespace] [-o options] [-t type]
//! /sbin/umount.fuse.shale MOUNTPOINT [-flnrv] [-N namespace] [-t type]
//! ```

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::commands::mount::MountArgs;
use crate::commands::unmount::UnmountHelperArgs;
use crate::output::failure::{Failure, mount_exit};

/// The helper that this process was called as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Helper {
    Mount,
    Unmount,
}

/// Whether mount(8) or umount(8) called this process, by its name.
pub(crate) fn called_as(arguments: &[OsString]) -> Option<Helper> {
    let name = Path::new(arguments.first()?).file_name()?;
    match name.to_str()? {
        "mount.shale" | "mount.fuse.shale" => Some(Helper::Mount),
        "umount.shale" | "umount.fuse.shale" => Some(Helper::Unmount),
        _ => None,
    }
}

/// Parses the arguments of umount(8).
pub(crate) fn parse_unmount(arguments: &[OsString]) -> Result<UnmountHelperArgs, Failure> {
    let refused = |what: &str| {
        Failure::new(
            mount_exit::USAGE,
            format_args!("{what}; call 'umount [-l] MOUNTPOINT'"),
        )
    };
    let mut unmount = UnmountHelperArgs::default();
    let mut place = None;
    let mut words = arguments.iter().skip(1);
    while let Some(word) = words.next() {
        let text = word.to_str().unwrap_or_default();
        let Some(letters) = text.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
            if place.replace(word).is_some() {
                return Err(refused("more than one mount point"));
            }
            continue;
        };
        for letter in letters.chars() {
            match letter {
                'l' => unmount.lazy = true,
                // A living daemon cannot be forced, and a dead one need not be.
                'f' | 'n' | 'r' | 'v' => {}
                't' => {
                    words.next();
                }
                'N' => return Err(refused("option -N (other namespace) is not supported")),
                _ => return Err(refused(&format!("unknown option '-{letter}'"))),
            }
        }
    }
    unmount.mountpoint = place.ok_or_else(|| refused("no mount point given"))?.into();
    Ok(unmount)
}

/// Parses the arguments of mount(8).
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
        return Err(usage("give a store and a mount point"));
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
    fn called_by_any_name() {
        for (line, expected) in [
            ("/sbin/mount.fuse.shale a b", Some(Helper::Mount)),
            ("mount.shale a b", Some(Helper::Mount)),
            ("/usr/sbin/umount.fuse.shale a", Some(Helper::Unmount)),
            ("umount.shale a", Some(Helper::Unmount)),
            ("shale mount a b", None),
            ("/usr/bin/shale", None),
        ] {
            assert_eq!(called_as(&words(line)), expected, "{line}");
        }
        assert_eq!(called_as(&[]), None);
    }

    #[test]
    fn as_umount_calls_it() {
        let unmount = parse_unmount(&words("umount.fuse.shale /mnt -nv -t fuse.shale")).unwrap();
        assert_eq!(unmount.mountpoint, Path::new("/mnt"));
        assert!(!unmount.lazy);
        assert!(parse_unmount(&words("u /mnt -fl")).unwrap().lazy);
        for line in ["u", "u a b", "u a -x", "u a -N 7", "u -t fuse.shale"] {
            let failure = parse_unmount(&words(line)).unwrap_err();
            assert_eq!(failure.status, mount_exit::USAGE, "{line}");
        }
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
