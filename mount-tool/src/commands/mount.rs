//! `shale mount`

use std::process::ExitCode;

use crate::backend::{Defaults, MountOptions, Requested, Unknown};
use crate::cli::MountArgs;
use crate::daemon;
use crate::failure::{Failure, mount_exit};
use crate::preflight::{self, Intent, Places};

pub(crate) fn run(args: &MountArgs) -> Result<ExitCode, Failure> {
    if args.daemonized {
        // Whoever started us prints the failure; the log has nothing to add.
        return Ok(match daemon::daemonized(|| Ok(prepare(args)?.options)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => failure.exit_code(),
        });
    }
    let prepared = prepare(args)?;
    if args.fake {
        return Ok(ExitCode::SUCCESS);
    }
    let log = args.log.as_deref().or(prepared.requested.log.as_deref());
    if args.foreground {
        daemon::foreground(&prepared.options, &prepared.places, log)?;
    } else {
        daemon::start(args, &prepared.places, log, prepared.options.read_only)?;
    }
    Ok(ExitCode::SUCCESS)
}

struct Prepared {
    requested: Requested,
    options: MountOptions,
    places: Places,
}

/// Checks everything that was asked for; creates nothing.
fn prepare(args: &MountArgs) -> Result<Prepared, Failure> {
    let requested = requested(args)?;
    let defaults = Defaults::of_this_machine();
    let wanted = requested.resolve(&args.store, &args.mountpoint, &defaults);
    let places = preflight::check(
        &args.store,
        &args.mountpoint,
        Intent {
            root: defaults.root,
            read_only: wanted.read_only,
            allow_other: wanted.allow_other,
            nocreate: requested.nocreate,
        },
    )?;
    let options = requested.resolve(&places.store, &places.mountpoint, &defaults);
    Ok(Prepared {
        requested,
        options,
        places,
    })
}

/// `-o` options first, then the flags, which are more deliberate.
fn requested(args: &MountArgs) -> Result<Requested, Failure> {
    let refused = |e| Failure::new(mount_exit::USAGE, e);
    let mut requested = Requested::default();
    let unknown = if args.sloppy {
        Unknown::Ignore
    } else {
        Unknown::Refuse
    };
    for list in &args.options {
        requested.add(list, unknown).map_err(refused)?;
    }
    let flags = [
        ("memory", &args.memory),
        ("backing", &args.backing),
        ("workers", &args.workers),
        ("chunk", &args.chunk),
        ("metrics", &args.metrics),
    ];
    for (name, value) in flags {
        if let Some(value) = value {
            requested.set(name, value).map_err(refused)?;
        }
    }
    if args.ro {
        requested.read_only = Some(true);
    }
    requested.check().map_err(refused)?;
    Ok(requested)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nocreate_makes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let args = MountArgs {
            options: vec!["noatime,nocreate".to_owned()],
            store: dir.path().join("store"),
            mountpoint: dir.path().to_owned(),
            ..MountArgs::default()
        };
        let failure = run(&args).unwrap_err();
        assert_eq!(failure.status, mount_exit::FAILED);
        assert!(failure.message().contains("nocreate"), "{failure}");
        assert!(!args.store.exists());
    }

    #[test]
    fn flags_win_over_options() {
        let args = MountArgs {
            memory: Some("32M".to_owned()),
            ro: true,
            options: vec!["rw,memory=1G,workers=3".to_owned(), "chunk=64K".to_owned()],
            ..MountArgs::default()
        };
        let requested = requested(&args).unwrap();
        assert_eq!(requested.memory, Some(32 << 20));
        assert_eq!(requested.workers, Some(3));
        assert_eq!(requested.chunk, Some(64 << 10));
        assert_eq!(requested.read_only, Some(true));
    }
}
