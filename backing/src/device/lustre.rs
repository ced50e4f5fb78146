//! Striping packs on Lustre.

use std::path::Path;
use std::process::{Command, Stdio};

/// Over how many storage targets a file is spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StripeCount {
    /// This many.
    Targets(u32),
    /// All of them.
    All,
    /// As the administrator has set it for the directory.
    Keep,
}

/// How packs are laid out over storage targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Striping {
    /// Targets of one pack.
    pub count: StripeCount,
    /// Bytes on one target before the next target follows.
    pub size: u64,
}

impl Default for Striping {
    /// A pack is one object on one target; Lustre spreads the packs.
    fn default() -> Self {
        Self {
            count: StripeCount::Targets(1),
            size: 4 << 20,
        }
    }
}

impl Striping {
    fn arguments(self) -> Option<[String; 4]> {
        let count = match self.count {
            StripeCount::Keep => return None,
            StripeCount::Targets(count) => count.to_string(),
            StripeCount::All => "-1".to_owned(),
        };
        Some([
            "-c".to_owned(),
            count,
            "-S".to_owned(),
            self.size.to_string(),
        ])
    }

    /// Sets the striping of files in a new directory. If that fails, Lustre's default applies,
    /// which is slower at worst.
    pub(crate) fn apply(self, path: &Path) {
        let Some(arguments) = self.arguments() else {
            return;
        };
        let answer = Command::new("lfs")
            .arg("setstripe")
            .args(&arguments)
            .arg(path)
            .stdin(Stdio::null())
            .output();
        let command = || format!("lfs setstripe {} {}", arguments.join(" "), path.display());
        match answer {
            Ok(answer) if answer.status.success() => {}
            Ok(answer) => tracing::warn!(
                "`{}` failed: {}; packs keep the striping of the directory. Mount with \
                 stripe_count=keep if this is intended",
                command(),
                String::from_utf8_lossy(&answer.stderr).trim()
            ),
            Err(e) => tracing::warn!(
                "cannot run `{}`: {e}; packs keep the striping of the directory: install the Lustre \
                 client tools or mount with stripe_count=keep",
                command()
            ),
        }
    }

    /// Packs whose length is a multiple of this fill their stripes.
    pub(crate) fn pack_unit(self) -> u64 {
        match self.count {
            StripeCount::Targets(count) => self.size * u64::from(count.max(1)),
            StripeCount::All | StripeCount::Keep => self.size,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn striping_is_said_as_lfs_wants_it() {
        let said = |count| {
            let size = 1 << 20;
            Striping { count, size }.arguments().map(|a| a.join(" "))
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(said(StripeCount::Targets(1)), some("-c 1 -S 1048576"));
        assert_eq!(said(StripeCount::All), some("-c -1 -S 1048576"));
        assert_eq!(said(StripeCount::Keep), None);
    }

    #[test]
    fn packs_fill_their_stripes() {
        let unit = |count| {
            let size = 4 << 20;
            Striping { count, size }.pack_unit()
        };
        assert_eq!(unit(StripeCount::Targets(1)), 4 << 20);
        assert_eq!(unit(StripeCount::Targets(4)), 16 << 20);
        assert_eq!(unit(StripeCount::Keep), 4 << 20);
    }
}
