//! The values in effect at a directory or file, and their consequences.

use std::time::Duration;

use shale_index::Ino;
use shale_store::Effort;

use super::{Authority, Codec, Durability, Key, Settle, Value};

/// Quiet time of files that settle by policy in a mount that does not settle in the background.
const QUIET: Duration = Duration::from_secs(10);

/// The options of the mount, which apply where nothing is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountDefaults {
    /// Chunk size of new files, a power of two.
    pub chunk: u32,
    /// Quiet time before a file settles; `None` to settle only on request.
    pub quiet: Option<Duration>,
}

/// A value and where it was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) value: Value,
    pub(crate) authority: Authority,
    /// The inode that has the attribute.
    pub(crate) ino: Ino,
}

/// For each key, the last value of each authority on the way from the root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effective {
    settings: [[Option<Setting>; Authority::ALL.len()]; Key::ALL.len()],
}

/// The consequences for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    /// How written data is encoded.
    pub(crate) write: Effort,
    /// How it is encoded when it settles.
    pub(crate) settle: Effort,
    /// How long it must be quiet to settle in the background; `None` if it does not.
    pub(crate) quiet: Option<Duration>,
    /// Its chunk size as a power of two.
    pub(crate) chunk_shift: u8,
    /// Closing it makes it durable.
    pub(crate) sync: bool,
}

impl Effective {
    /// The values in effect where `own` is set below this.
    pub(crate) fn with(&self, own: Vec<Setting>) -> Self {
        let mut effective = self.clone();
        for setting in own {
            let (key, authority) = (setting.value.key(), setting.authority);
            effective.settings[key as usize][authority as usize] = Some(setting);
        }
        effective
    }

    /// The setting in effect for a key: that of root, else that of users.
    pub(crate) fn get(&self, key: Key) -> Option<&Setting> {
        self.settings[key as usize].iter().flatten().next()
    }

    /// The consequences for a file, with the options of the mount where nothing is set.
    pub(crate) fn policy(&self, defaults: &MountDefaults) -> Policy {
        let mut chunk = defaults.chunk;
        let mut quiet = defaults.quiet;
        let (mut codec, mut settle_codec) = (Codec::Auto, None);
        let mut effort = Effort::Fast;
        let mut sync = false;
        for setting in Key::ALL.into_iter().filter_map(|key| self.get(key)) {
            match &setting.value {
                Value::Codec(asked) => codec = *asked,
                Value::Effort(asked) => effort = *asked,
                Value::Chunk(asked) => chunk = *asked,
                Value::Settle(asked) => quiet = asked.quiet(defaults),
                Value::SettleCodec(asked) => settle_codec = Some(*asked),
                Value::Region(_) => {}
                Value::Durability(asked) => sync = *asked == Durability::Sync,
            }
        }
        Policy {
            write: codec.effort(effort),
            settle: settle_codec.unwrap_or(codec).effort(Effort::Dense),
            quiet,
            chunk_shift: chunk.ilog2() as u8,
            sync,
        }
    }
}

impl Settle {
    /// How long a file must be quiet.
    pub(crate) fn quiet(self, defaults: &MountDefaults) -> Option<Duration> {
        match self {
            Self::Off => None,
            Self::On => Some(defaults.quiet.unwrap_or(QUIET)),
            Self::After(quiet) => Some(quiet),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNT: MountDefaults = MountDefaults {
        chunk: 1 << 20,
        quiet: Some(Duration::from_secs(7)),
    };

    fn set(ino: Ino, list: &str) -> Vec<Setting> {
        list.split_whitespace()
            .map(|word| {
                let (authority, rest) = match word.strip_prefix('!') {
                    Some(rest) => (Authority::Root, rest),
                    None => (Authority::User, word),
                };
                let (name, value) = rest.split_once('=').unwrap();
                let key = Key::from_name(name).unwrap();
                Setting {
                    value: Value::parse(key, value.as_bytes()).unwrap(),
                    authority,
                    ino,
                }
            })
            .collect()
    }

    /// The levels from the root down, each a list of settings, `!` for those of root.
    fn effective(levels: &[&str]) -> Effective {
        let levels = levels.iter().zip(1..);
        levels.fold(Effective::default(), |effective, (list, ino)| {
            effective.with(set(ino, list))
        })
    }

    #[test]
    fn nothing_set_is_as_the_mount_says() {
        assert_eq!(
            effective(&["", ""]).policy(&MOUNT),
            Policy {
                write: Effort::Fast,
                settle: Effort::Dense,
                quiet: MOUNT.quiet,
                chunk_shift: 20,
                sync: false,
            }
        );
    }

    #[test]
    fn the_nearest_value_holds() {
        let effective = effective(&["codec=lz4 chunk=4M", "codec=zstd:3", ""]);
        assert_eq!(effective.get(Key::Codec).map(|s| s.ino), Some(2));
        assert_eq!(effective.get(Key::Chunk).map(|s| s.ino), Some(1));
        let policy = effective.policy(&MOUNT);
        assert_eq!(policy.write, Effort::Zstd(3));
        assert_eq!(policy.chunk_shift, 22);
    }

    #[test]
    fn the_word_of_root_wins_however_far_away() {
        let effective = effective(&["!codec=none", "codec=zstd:3", "codec=lz4"]);
        assert_eq!(effective.get(Key::Codec).map(|s| s.ino), Some(1));
        assert_eq!(effective.policy(&MOUNT).write, Effort::None);
    }

    #[test]
    fn the_nearest_word_of_root_wins() {
        let effective = effective(&["!settle=off", "!settle=3", "settle=off"]);
        assert_eq!(effective.policy(&MOUNT).quiet, Some(Duration::from_secs(3)));
    }

    #[test]
    fn effort_matters_only_to_the_codec_that_chooses() {
        let policy = effective(&["effort=balanced"]).policy(&MOUNT);
        assert_eq!(
            (policy.write, policy.settle),
            (Effort::Balanced, Effort::Dense)
        );
        let policy = effective(&["effort=balanced", "codec=lz4"]).policy(&MOUNT);
        assert_eq!((policy.write, policy.settle), (Effort::Lz4, Effort::Lz4));
    }

    #[test]
    fn files_settle_as_they_are_written_unless_told_otherwise() {
        let policy = effective(&["codec=none"]).policy(&MOUNT);
        assert_eq!((policy.write, policy.settle), (Effort::None, Effort::None));
        let policy = effective(&["codec=none settle.codec=auto"]).policy(&MOUNT);
        assert_eq!((policy.write, policy.settle), (Effort::None, Effort::Dense));
        let policy = effective(&["settle.codec=zstd:19"]).policy(&MOUNT);
        assert_eq!(
            (policy.write, policy.settle),
            (Effort::Fast, Effort::Zstd(19))
        );
    }

    #[test]
    fn on_means_as_the_mount_or_after_a_while() {
        let on = effective(&["settle=off", "settle=on"]);
        assert_eq!(on.policy(&MOUNT).quiet, MOUNT.quiet);
        let never = MountDefaults {
            quiet: None,
            ..MOUNT
        };
        assert_eq!(on.policy(&never).quiet, Some(QUIET));
        assert_eq!(effective(&[""]).policy(&never).quiet, None);
    }
}
