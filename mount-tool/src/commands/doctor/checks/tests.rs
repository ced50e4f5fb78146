use shale_fs::reports::{Damaged, DamagedFile};
use shale_fs::stats::Displaced;

use super::Verdict::{Advice, Ok, Problem};
use super::*;
use crate::commands::doctor::facts::{Absent, Closed, DaemonFacts, Lines, Log, MountFacts};

fn machine() -> MachineFacts {
    MachineFacts {
        kernel: "6.18.4-generic".to_owned(),
        fuse: Result::Ok(()),
        fusermount: true,
        root: true,
        open_files: 524_288,
        ram: 16 << 30,
        now: 1_800_000_000,
    }
}

fn store() -> StoreFacts {
    StoreFacts {
        path: "/s".into(),
        format: Result::Ok(()),
        mode: 0o40_700,
        newest: 1_799_999_999,
        total: 1 << 40,
        available: 1 << 39,
        inodes: (1 << 20, 1 << 19),
        backing: "ext4".to_owned(),
        backing_options: vec!["rw".to_owned(), "relatime".to_owned()],
        log: Log::Read("/s/shale.log".into(), Lines::default()),
        mount: None,
    }
}

fn mounted() -> MountFacts {
    MountFacts {
        mountpoint: "/m".into(),
        dead: false,
        options: ["rw", "nosuid", "nodev", "allow_other"]
            .map(str::to_owned)
            .to_vec(),
        daemon: Some(DaemonFacts {
            pid: 7,
            outdated: false,
            open_files: Some(524_288),
            resident: Some(300 << 20),
        }),
        damaged: Some(Damaged::default()),
    }
}

#[track_caller]
fn verdict(check: Check, verdict: Verdict, words: &str) {
    assert_eq!(check.verdict, verdict, "{}", check.message);
    assert!(check.message.contains(words), "{}", check.message);
    assert!(!check.message.contains('\n'), "{}", check.message);
}

#[test]
fn a_good_machine_and_store_have_nothing_to_complain_of() {
    let store = StoreFacts {
        mount: Some(mounted()),
        ..store()
    };
    let mut checks = of_machine(&machine());
    checks.extend(of_store(&machine(), &store));
    assert_eq!(checks.len(), 16);
    for check in checks {
        assert_eq!(check.verdict, Ok, "{check:?}");
    }
}

#[test]
fn stores_that_went_away_under_their_mount() {
    let absent = |how| Absent {
        store: "/s".into(),
        how,
        log: Log::Hidden,
        mount: mounted(),
    };
    for (how, expected, words) in [
        (Some(Displaced::Removed), Problem, "shale unmount /m"),
        (Some(Displaced::Moved("/t".to_owned())), Advice, "to /t"),
        (Some(Displaced::OutOfSight), Advice, "keeps using"),
        (None, Problem, "no store at /s"),
    ] {
        verdict(displaced(&absent(how)), expected, words);
    }
    let subject = Subject::Displaced(Box::new(absent(None)));
    assert_eq!(of_subject(&machine(), &subject).len(), 4);
}

#[test]
fn kernels() {
    for (release, expected, words) in [
        ("6.18.4-generic", Ok, "6.18"),
        ("5.11.0", Ok, "5.11"),
        ("5.10.200-el8", Problem, "install 5.11 or newer"),
        ("4.18.0-553.el8", Problem, "install 5.11 or newer"),
        ("unknown", Advice, "cannot read the kernel version"),
        ("", Advice, "cannot read the kernel version"),
    ] {
        let kernel = kernel(&MachineFacts {
            kernel: release.to_owned(),
            ..machine()
        });
        verdict(kernel, expected, words);
    }
}

#[test]
fn access_to_fuse() {
    let closed = MachineFacts {
        fuse: Err("permission denied".to_owned()),
        ..machine()
    };
    verdict(fuse(&closed), Problem, "modprobe fuse");
    for (root, expected) in [(true, Advice), (false, Problem)] {
        let without = MachineFacts {
            fusermount: false,
            root,
            ..machine()
        };
        verdict(fusermount(&without), expected, "package fuse3");
    }
}

#[test]
fn limits_of_the_machine() {
    for (limit, expected) in [(256, Problem), (1024, Advice), (4096, Ok)] {
        let limited = MachineFacts {
            open_files: limit,
            ..machine()
        };
        verdict(open_files(&limited), expected, &limit.to_string());
    }
    let small = MachineFacts {
        ram: 256 << 20,
        ..machine()
    };
    verdict(memory(&small), Advice, "--memory 64M");
}

#[test]
fn a_store_of_an_unknown_format() {
    let strange = StoreFacts {
        format: Err("version 9; use the program that wrote it".to_owned()),
        ..store()
    };
    verdict(format(&strange), Problem, "program that wrote it");
}

#[test]
fn file_systems_below() {
    for (kind, expected, words) in [
        ("xfs", Ok, "xfs"),
        ("lustre", Ok, "lustre"),
        ("tmpfs", Problem, "reboot"),
        ("fuse.shale", Problem, "twice"),
        ("nfs4", Advice, "one machine"),
        ("squashfs", Ok, "--ro"),
        ("overlay", Advice, "volume"),
        ("fuse.sshfs", Advice, "not tested"),
    ] {
        let on = StoreFacts {
            backing: kind.to_owned(),
            ..store()
        };
        verdict(backing(&on), expected, words);
    }
}

#[test]
fn options_of_the_file_system_below() {
    for (option, expected, words) in [
        ("ro", Advice, "--ro"),
        ("nobarrier", Problem, "barriers"),
        ("barrier=0", Problem, "barriers"),
        ("sync", Advice, "async"),
        ("compress=zstd:3", Advice, "compress"),
        ("noatime", Ok, ""),
    ] {
        let with = StoreFacts {
            backing_options: vec![option.to_owned()],
            ..store()
        };
        verdict(backing_options(&with), expected, words);
    }
    let read_only = StoreFacts {
        backing_options: vec!["ro".to_owned()],
        mount: Some(MountFacts {
            options: vec!["ro".to_owned()],
            ..mounted()
        }),
        ..store()
    };
    verdict(backing_options(&read_only), Ok, "");
    let full = StoreFacts {
        available: 0,
        inodes: (10, 0),
        ..read_only
    };
    verdict(space(&full), Ok, "nothing is written");
    verdict(inodes(&full), Ok, "nothing is written");
    let broken = StoreFacts {
        backing_options: vec!["ro".to_owned()],
        mount: Some(mounted()),
        ..store()
    };
    verdict(backing_options(&broken), Problem, "remount");
}

#[test]
fn room_on_the_device() {
    for (available, expected, words) in [
        (100 << 20, Problem, "ENOSPC"),
        (40 << 30, Advice, "less than 5 %"),
        (60 << 30, Ok, "free"),
    ] {
        let with = StoreFacts {
            available,
            ..store()
        };
        verdict(space(&with), expected, words);
    }
    let crowded = StoreFacts {
        inodes: (1000, 10),
        ..store()
    };
    verdict(inodes(&crowded), Problem, "inodes");
    let boundless = StoreFacts {
        inodes: (0, 0),
        ..store()
    };
    verdict(inodes(&boundless), Ok, "enough");
}

#[test]
fn a_store_that_others_can_enter() {
    let open = StoreFacts {
        mode: 0o40_755,
        ..store()
    };
    verdict(privacy(&open), Advice, "chmod 700 /s");
}

#[test]
fn clocks() {
    let early = MachineFacts {
        now: 1000,
        ..machine()
    };
    verdict(clock(&early, &store()), Problem, "before 2025");
    let late = StoreFacts {
        newest: machine().now + 7200,
        ..store()
    };
    verdict(clock(&machine(), &late), Problem, "120 minutes behind");
    let skewed = StoreFacts {
        newest: machine().now + 60,
        ..store()
    };
    verdict(clock(&machine(), &skewed), Ok, "");
}

#[test]
fn warnings_in_the_log() {
    let read = |warnings, damage: Option<&str>| {
        let damage = damage.map(str::to_owned);
        Log::Read("/s/shale.log".into(), Lines { warnings, damage })
    };
    for (log_, expected, words) in [
        (read(0, None), Ok, "/s/shale.log"),
        (
            read(1, None),
            Advice,
            "1 warning at the end of /s/shale.log",
        ),
        (read(3, None), Advice, "3 warnings at the end"),
        (
            read(3, Some("ERROR x is damaged")),
            Problem,
            "shale fsck /s",
        ),
        (Log::Elsewhere(7, "/dev/null".into()), Advice, "--log FILE"),
        (Log::Elsewhere(7, "socket:[12]".into()), Advice, "_PID=7"),
        (Log::Elsewhere(7, "/dev/pts/3".into()), Advice, "/dev/pts/3"),
        (Log::Hidden, Advice, "not checked"),
    ] {
        verdict(log(&log_, &store().path, false), expected, words);
    }
}

#[test]
fn damaged_files_are_named() {
    let file = |number: u64| DamagedFile {
        path: format!("run/{number}.nc"),
        offset: number,
        error: "checksum differs".to_owned(),
    };
    let with = |count| MountFacts {
        damaged: Some(Damaged {
            count,
            files: (0..count).map(file).collect(),
        }),
        ..mounted()
    };
    let words = "1 file with damaged data: /m/run/0.nc (offset 0: checksum differs);";
    verdict(data(&with(1)).unwrap(), Problem, words);
    verdict(
        data(&with(30)).unwrap(),
        Problem,
        "checksum differs), 10 more;",
    );
    verdict(data(&with(0)).unwrap(), Ok, "intact");
    let unknown = MountFacts {
        damaged: None,
        ..mounted()
    };
    assert_eq!(data(&unknown), None);
}

#[test]
fn a_store_that_one_may_not_enter_leaves_its_mount_to_look_at() {
    let closed = Subject::Closed(Closed {
        store: "/s".into(),
        mount: MountFacts {
            daemon: None,
            damaged: None,
            ..mounted()
        },
    });
    let checks = of_subject(&machine(), &closed);
    let names: Vec<_> = checks.iter().map(|check| check.name).collect();
    assert_eq!(names, ["store", "daemon", "mount options"]);
    for check in checks {
        assert_ne!(check.verdict, Problem, "{check:?}");
    }
}

#[test]
fn daemons() {
    let dead = MountFacts {
        dead: true,
        daemon: None,
        ..mounted()
    };
    verdict(daemon(&dead), Problem, "shale unmount /m");
    let hidden = MountFacts {
        daemon: None,
        ..mounted()
    };
    verdict(daemon(&hidden), Advice, "as root");
    let with = |change: fn(&mut DaemonFacts)| {
        let mut mount = mounted();
        mount.daemon.iter_mut().for_each(change);
        daemon(&mount)
    };
    verdict(with(|d| d.outdated = true), Advice, "replaced");
    verdict(with(|d| d.open_files = Some(256)), Problem, "nofile");
    verdict(with(|d| d.resident = None), Ok, "process 7");
}

#[test]
fn options_of_the_mount() {
    let with = |options: &[&str]| {
        let mount = MountFacts {
            options: options.iter().map(|&option| option.to_owned()).collect(),
            ..mounted()
        };
        mount_options(&machine(), &mount)
    };
    let usual = ["rw", "nodev", "nosuid", "allow_other"];
    verdict(with(&usual), Ok, "");
    verdict(with(&["rw", "nodev", "nosuid"]), Advice, "allow_other");
    verdict(with(&["rw", "nodev", "allow_other"]), Advice, "suid");
    verdict(
        with(&["sync", "nodev", "nosuid", "allow_other"]),
        Advice,
        "fsync",
    );
}
