use super::*;

const ROOT: Machine = Machine {
    root: true,
    ram: 8 * GIB,
    cores: 4,
};
const USER: Machine = Machine {
    root: false,
    ram: 64 * GIB,
    cores: 1000,
};

fn resolve(list: &str, defaults: &Machine) -> MountOptions {
    let requested = Requested::parse(list).unwrap();
    requested.resolve(Path::new("/store"), Path::new("/mnt"), defaults)
}

fn refused(list: &str) -> String {
    Requested::parse(list).unwrap_err().to_string()
}

#[test]
fn sizes_in_every_spelling() {
    for (text, bytes) in [
        ("0", 0),
        ("4096", 4096),
        ("512b", 512),
        ("64K", 64 * KIB),
        ("64k", 64 * KIB),
        ("64KiB", 64 * KIB),
        ("16MB", 16 * MIB),
        ("1.5G", 3 * GIB / 2),
        ("0.25t", TIB / 4),
        ("1TiB", TIB),
    ] {
        assert_eq!(parse_size(text), Some(bytes), "{text}");
    }
}

#[test]
fn what_is_not_a_size_is_refused() {
    for text in [
        "",
        "K",
        "-1",
        "+",
        "1 G",
        "1P",
        "1.G",
        ".",
        "1.2345G",
        "1.5",
        "0x10",
        "1e6",
        "4GG",
        "99999999999999999999",
        "18446744073709551615K",
        "4\u{662}",
    ] {
        assert_eq!(parse_size(text), None, "{text:?}");
    }
}

#[test]
fn root_shares_the_mount_but_trusts_no_devices() {
    let options = resolve("", &ROOT);
    assert!(options.allow_other);
    assert!(options.default_permissions);
    assert!(!options.read_only);
    assert_eq!(options.fuse_options, ["nodev", "nosuid"]);
    assert_eq!(options.memory, 2 * GIB);
    assert_eq!(options.workers, 4);
    assert_eq!(options.chunk, CHUNK_DEFAULT);
    assert_eq!(options.store, Path::new("/store"));
    assert_eq!(options.mountpoint, Path::new("/mnt"));
}

#[test]
fn an_ordinary_user_keeps_the_mount_private() {
    let options = resolve("defaults", &USER);
    assert!(!options.allow_other);
    assert!(options.default_permissions);
    assert!(options.fuse_options.is_empty());
    assert_eq!(options.memory, MEMORY_DEFAULT_MAX);
    assert_eq!(options.workers, WORKERS_MAX);
    assert!(resolve("allow_other", &USER).allow_other);
}

#[test]
fn a_tiny_machine_still_gets_the_smallest_budget() {
    assert_eq!(Machine { ram: 0, ..ROOT }.memory(), MEMORY_MIN);
    assert_eq!(Machine { cores: 0, ..ROOT }.workers(), 1);
}

#[test]
fn an_fstab_line_is_understood() {
    let options = resolve(
        "rw,dev,suid,allow_other,_netdev,nofail,noauto,users,owner,group,comment=run 7,\
         x-systemd.automount,X-mount.mkdir,memory=8G,workers=6,chunk=256K,noatime",
        &ROOT,
    );
    assert_eq!(options.memory, 8 * GIB);
    assert_eq!(options.workers, 6);
    assert_eq!(options.chunk, 256 << 10);
    assert_eq!(options.fuse_options, ["dev", "suid", "noatime"]);
}

#[test]
fn words_that_mount_passes_on_allow_devices_and_set_id_programs() {
    let of = |list| resolve(list, &ROOT).fuse_options;
    assert_eq!(of("rw,allow_dev,allow_suid"), ["dev", "suid"]);
    assert_eq!(of("allow_dev,allow_suid,nodev"), ["nodev", "suid"]);
}

#[test]
fn usual_options_for_access_times_are_no_obstacle() {
    let usual = "norelatime,strictatime,nostrictatime,diratime,nodiratime,lazytime,nolazytime";
    assert_eq!(
        resolve(&format!("noatime,{usual},loud,silent"), &ROOT),
        resolve("noatime", &ROOT)
    );
}

#[test]
fn the_last_word_wins() {
    assert!(resolve("rw,ro", &ROOT).read_only);
    assert!(!resolve("ro,rw", &ROOT).read_only);
    assert_eq!(
        resolve("noatime,relatime,sync,async,nodev,dev", &USER).fuse_options,
        ["dev", "async"]
    );
    assert_eq!(resolve("memory=16M,memory=32M", &ROOT).memory, 32 * MIB);
}

#[test]
fn empty_items_are_skipped() {
    assert_eq!(resolve(",,ro,,", &ROOT), resolve("ro", &ROOT));
}

#[test]
fn a_log_file_is_kept_apart() {
    let requested = Requested::parse("log=/var/log/shale.log").unwrap();
    assert_eq!(
        requested.log.as_deref(),
        Some(Path::new("/var/log/shale.log"))
    );
    assert!(refused("log=").contains("log=FILE"));
}

#[test]
fn users_have_names_or_numbers() {
    let options = resolve("metrics=127.0.0.1:1,metrics_users=root+1001", &ROOT);
    assert_eq!(options.metrics_users, [0, 1001]);
    assert!(
        resolve("metrics=127.0.0.1:1", &ROOT)
            .metrics_users
            .is_empty()
    );
    for unknown in ["no such user", "", "root+", "-1", "4294967296", "a\0b"] {
        let message = refused(&format!("metrics_users={unknown}"));
        assert!(message.contains("there is no user"), "{message}");
    }
    for (list, word) in [
        ("metrics_users=0", "needs a port"),
        ("metrics_users=0,metrics=unix:/m", "permissions"),
    ] {
        let error = Requested::parse(list).unwrap().check().unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn unknown_options_are_named() {
    assert!(refused("ro,frobnicate,rw").contains("'frobnicate'"));
    assert!(refused("compress=zstd").contains("'compress=zstd'"));
    assert!(refused("memory").contains("memory=..."));
    assert!(refused("remount,ro").contains("unmount and mount again"));
}

#[test]
fn a_sloppy_mount_ignores_unknown_options_but_not_bad_values() {
    let mut requested = Requested::default();
    requested.add("frobnicate,ro", Unknown::Ignore).unwrap();
    assert_eq!(requested.read_only, Some(true));
    assert!(requested.add("memory=lots", Unknown::Ignore).is_err());
}

#[test]
fn values_out_of_range_say_the_range() {
    for (list, words) in [
        ("memory=15M", ["out of range", "16M to 1T"]),
        ("memory=2T", ["out of range", "16M to 1T"]),
        ("memory=lots", ["not a size", "16M to 1T"]),
        ("memory=-1", ["not a size", "16M to 1T"]),
        ("workers=0", ["out of range", "1 to 256"]),
        ("workers=257", ["out of range", "1 to 256"]),
        ("workers=two", ["not a number", "1 to 256"]),
        (
            "settle_workers=0",
            ["settle_workers '0'", "settle_workers=8"],
        ),
        (
            "settle_workers=x",
            ["settle_workers 'x'", "settle_workers=8"],
        ),
        ("chunk=32K", ["out of range", "64K to 16M"]),
        ("chunk=32M", ["out of range", "64K to 16M"]),
        ("chunk=100000", ["not a power of two", "64K to 16M"]),
        ("chunk=", ["not a size", "64K to 16M"]),
    ] {
        let message = refused(list);
        for word in words {
            assert!(message.contains(word), "{list}: {message}");
        }
        assert!(!message.contains('\n'));
    }
}

#[test]
fn the_ends_of_the_ranges_are_allowed() {
    let options = resolve("memory=16M,workers=1,chunk=64K", &ROOT);
    assert_eq!(
        (options.memory, options.workers, options.chunk),
        (MEMORY_MIN, 1, 64 << 10)
    );
    let options = resolve("memory=1T,workers=256,chunk=16M", &ROOT);
    assert_eq!(
        (options.memory, options.workers, options.chunk),
        (MEMORY_MAX, 256, 16 << 20)
    );
}

#[test]
fn this_machine_has_memory_and_cores() {
    let defaults = Machine::detect();
    assert!(defaults.ram >= 16 * MIB);
    assert!(defaults.cores >= 1);
}
