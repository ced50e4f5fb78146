//! Where policies apply.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};

use shale_tests::{Case, Cmd, Outcome, ensure, ensure_eq, report};

use crate::{effective, field, get, set, unset, write};

pub(crate) fn precedence(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=33"])?;
    let root = mount.path().to_owned();
    let (run, year) = (root.join("run1"), root.join("run1/1999"));
    fs::create_dir_all(&year)?;
    let file = year.join("file");
    write(&file, b"x")?;
    let at = |policy: &str| effective(&file, policy);
    let held = |value: &str, source: &str| (value.to_owned(), source.to_owned());
    ensure_eq!(at("codec")?, held("auto", "by default"), "codec");
    ensure_eq!(at("effort")?, held("fast", "by default"), "effort");
    ensure_eq!(at("chunk")?, held("1M", "from the mount"), "chunk");
    ensure_eq!(at("settle")?, held("33", "from the mount"), "settle");
    ensure_eq!(
        at("settle.codec")?,
        held("auto", "as codec"),
        "settle.codec"
    );
    ensure_eq!(at("region")?, held("", "not set"), "region");
    ensure_eq!(
        at("durability")?,
        held("normal", "by default"),
        "durability"
    );

    set(&run, "user.shale.codec", "zstd:3")?;
    let from_run = "from user.shale.codec on the directory 2 levels up, /run1";
    ensure_eq!(at("codec")?, held("zstd:3", from_run), "from above");
    ensure_eq!(
        at("settle.codec")?,
        held("zstd:3", "as codec"),
        "settle.codec"
    );
    set(&year, "user.shale.codec", "none")?;
    let from_year = "from user.shale.codec on the directory 1 level up, /run1/1999";
    ensure_eq!(at("codec")?, held("none", from_year), "nearer");
    set(&file, "user.shale.codec", "zstd:5")?;
    ensure_eq!(
        at("codec")?,
        held("zstd:5", "set here as user.shale.codec"),
        "here"
    );
    set(&root, "trusted.shale.codec", "lz4")?;
    let fixed = "from trusted.shale.codec on the directory 3 levels up, /";
    ensure_eq!(at("codec")?, held("lz4", fixed), "the word of root");
    set(&run, "trusted.shale.codec", "zstd:1")?;
    let nearer = "from trusted.shale.codec on the directory 2 levels up, /run1";
    ensure_eq!(
        at("codec")?,
        held("zstd:1", nearer),
        "the nearer word of root"
    );
    write(&file, &field(50_000))?;
    ensure_eq!(
        report(&file, "codecs")?,
        "columns:zstd",
        "and so it is done"
    );
    unset(&run, "trusted.shale.codec")?;
    write(&file, &field(50_000))?;
    ensure_eq!(
        report(&file, "codecs")?,
        "columns:lz4",
        "the farther word of root"
    );
    unset(&root, "trusted.shale.codec")?;
    unset(&file, "user.shale.codec")?;
    ensure_eq!(
        at("codec")?,
        held("none", from_year),
        "back to the directory"
    );
    set(&run, "user.shale.region", "/ocean/basin mask")?;
    ensure_eq!(at("region")?.0, "/ocean/basin mask", "region");
    set(&year, "user.shale.settle", "on")?;
    let on = "from user.shale.settle on the directory 1 level up, /run1/1999; after 33 seconds";
    ensure_eq!(at("settle")?, held("on", on), "on");
    mount.unmount()?;
    mount.fsck_is_clean()
}

const NOBODY: u32 = 65_534;

pub(crate) fn ordinary_user(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    fs::set_permissions(case.work(), fs::Permissions::from_mode(0o755))?;
    let (home, others) = (mount.path().join("home"), mount.path().join("others"));
    for dir in [&home, &others] {
        fs::create_dir(dir)?;
    }
    std::os::unix::fs::chown(&home, Some(NOBODY), Some(NOBODY))?;
    let as_nobody = |script: &str| {
        Cmd::shell(script)
            .env("HOME_DIR", &home)
            .env("OTHERS", &others)
            .user(NOBODY, NOBODY)
            .run()
    };
    as_nobody("setfattr -n user.shale.codec -v zstd:3 $HOME_DIR")?.success()?;
    for (script, why) in [
        (
            "setfattr -n user.shale.codec -v none $OTHERS",
            "a directory of others",
        ),
        (
            "setfattr -n trusted.shale.codec -v none $HOME_DIR",
            "the word of root",
        ),
        (
            "setfattr -x trusted.shale.codec $HOME_DIR",
            "taking away the word of root",
        ),
    ] {
        let refused = as_nobody(script)?;
        ensure!(
            !refused.status.success(),
            "an ordinary user may change {why}"
        );
    }
    set(mount.path(), "trusted.shale.codec", "lz4")?;
    as_nobody(
        "setfattr -n user.shale.codec -v none $HOME_DIR
         for i in $(seq 20000); do echo line $i of some text; done > $HOME_DIR/file
         setfattr -n user.shale.codec -v none $HOME_DIR/file
         for i in $(seq 20000); do echo line $i of some text; done > $HOME_DIR/file
         getfattr --only-values -n user.shale.effective $HOME_DIR/file | grep -qx \
            'codec=lz4  from trusted.shale.codec on the directory 2 levels up, /'
         getfattr -d -m - $HOME_DIR | grep -q user.shale.codec
         ! getfattr -d -m - $HOME_DIR/.. | grep -q trusted",
    )?
    .success()?;
    let file = home.join("file");
    File::open(&file)?.sync_all()?;
    ensure_eq!(
        report(&file, "codecs")?,
        "columns:lz4",
        "what an ordinary user writes"
    );
    unset(mount.path(), "trusted.shale.codec")?;
    ensure_eq!(effective(&file, "codec")?.0, "none", "once root has let go");
    mount.unmount()?;
    mount.fsck_is_clean()
}

pub(crate) fn moves(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    let (raw, packed) = (mount.path().join("raw"), mount.path().join("packed"));
    for (dir, codec, chunk) in [(&raw, "none", "64K"), (&packed, "lz4", "4M")] {
        fs::create_dir(dir)?;
        set(dir, "user.shale.codec", codec)?;
        set(dir, "user.shale.chunk", chunk)?;
    }
    let data = field(50_000);
    // A file, while it is open.
    let open = File::create(raw.join("file"))?;
    open.write_all_at(&data, 0)?;
    open.sync_all()?;
    fs::rename(raw.join("file"), packed.join("file"))?;
    let file = packed.join("file");
    ensure_eq!(
        report(&file, "codecs")?,
        "verbatim:raw",
        "what is there stays"
    );
    open.write_all_at(&data, 0)?;
    open.sync_all()?;
    let found = report(&file, "codecs")?;
    ensure!(
        found.starts_with("columns:lz4"),
        "what is written later: {found}"
    );
    ensure_eq!(
        fs::metadata(&file)?.blksize(),
        64 << 10,
        "chunks stay as they were"
    );
    drop(open);
    // A directory with what is below.
    fs::create_dir_all(raw.join("sub/below"))?;
    let below = raw.join("sub/below/file");
    write(&below, &data)?;
    ensure_eq!(effective(&below, "codec")?.0, "none", "before the move");
    fs::rename(raw.join("sub"), packed.join("sub"))?;
    let below = packed.join("sub/below/file");
    ensure_eq!(
        effective(&below, "codec")?,
        (
            "lz4".to_owned(),
            "from user.shale.codec on the directory 3 levels up, /packed".to_owned()
        ),
        "after the move"
    );
    write(&packed.join("sub/below/new"), &data)?;
    ensure_eq!(
        report(&packed.join("sub/below/new"), "codecs")?,
        "columns:lz4",
        "a new file"
    );
    // Two directories that change places.
    fs::create_dir_all(raw.join("left/x"))?;
    fs::create_dir_all(packed.join("right/x"))?;
    for dir in [raw.join("left/x"), packed.join("right/x")] {
        effective(&dir, "codec")?;
    }
    rustix::fs::renameat_with(
        rustix::fs::CWD,
        raw.join("left"),
        rustix::fs::CWD,
        packed.join("right"),
        rustix::fs::RenameFlags::EXCHANGE,
    )?;
    ensure_eq!(
        effective(&raw.join("left/x"), "codec")?.0,
        "none",
        "exchanged"
    );
    ensure_eq!(
        effective(&packed.join("right/x"), "codec")?.0,
        "lz4",
        "exchanged"
    );
    // A file without a name stays as it was, even when its directory has gone.
    fs::create_dir(raw.join("gone"))?;
    let open = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(raw.join("gone/file"))?;
    fs::remove_file(raw.join("gone/file"))?;
    fs::remove_dir(raw.join("gone"))?;
    set(mount.path(), "user.shale.codec", "zstd:3")?;
    let before: u64 = report(mount.path(), "raw")?.parse()?;
    open.write_all_at(&data, 0)?;
    open.sync_all()?;
    let mut back = vec![0; data.len()];
    open.read_exact_at(&mut back, 0)?;
    ensure!(back == data, "a file without a name lost its contents");
    let mut codecs = [0; 64];
    let len = rustix::fs::fgetxattr(&open, "user.shale.stat.codecs", &mut codecs[..])?;
    ensure_eq!(
        &codecs[..len],
        b"verbatim:raw",
        "without a name it is as it was"
    );
    ensure_eq!(
        report(mount.path(), "raw")?.parse::<u64>()?,
        before,
        "it counts nowhere"
    );
    drop(open);
    mount.unmount()?;
    mount.fsck_is_clean()
}

pub(crate) fn links(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    let (first, second) = (mount.path().join("first"), mount.path().join("second"));
    fs::create_dir(&first)?;
    fs::create_dir(&second)?;
    set(mount.path(), "user.shale.codec", "zstd:1")?;
    set(&first, "user.shale.codec", "none")?;
    set(&second, "user.shale.codec", "lz4")?;
    let data = field(50_000);
    write(&first.join("file"), &data)?;
    fs::hard_link(first.join("file"), second.join("file"))?;
    let path = second.join("file");
    ensure_eq!(effective(&path, "codec")?.0, "none", "where it was made");
    write(&path, &data)?;
    ensure_eq!(
        report(&path, "codecs")?,
        "verbatim:raw",
        "written by its other name"
    );
    let open = File::options().write(true).open(&path)?;
    fs::remove_file(first.join("file"))?;
    ensure_eq!(
        effective(&path, "codec")?.0,
        "zstd:1",
        "at the top once that name is gone"
    );
    open.write_all_at(&data, 0)?;
    open.sync_all()?;
    ensure_eq!(
        report(&path, "codecs")?,
        "columns:zstd",
        "also in handles that were open before"
    );
    // A value of its own goes with it whatever its names are.
    set(&path, "user.shale.codec", "lz4")?;
    fs::hard_link(&path, first.join("again"))?;
    ensure_eq!(
        effective(&first.join("again"), "codec")?.0,
        "lz4",
        "its own value"
    );
    drop(open);
    mount.unmount()?;
    mount.fsck_is_clean()
}

pub(crate) fn survival(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    let dir = mount.path().join("dir");
    fs::create_dir(&dir)?;
    let values = [
        ("user.shale.codec", "zstd:7"),
        ("user.shale.effort", "dense"),
        ("user.shale.chunk", "4M"),
        ("user.shale.settle", "off"),
        ("user.shale.settle.codec", "lz4"),
        ("user.shale.region", "mask"),
        ("trusted.shale.durability", "sync"),
        ("trusted.shale.codec", "none"),
    ];
    for (name, value) in values {
        set(&dir, name, value)?;
    }
    let explained = get(&dir, "user.shale.effective")?;
    mount.kill9()?;
    mount.detach();
    mount.fsck_is_clean()?;
    mount.start()?;
    for _ in 0..2 {
        for (name, value) in values {
            ensure_eq!(get(&dir, name)?, value, "{name}");
        }
        ensure_eq!(get(&dir, "user.shale.effective")?, explained, "what holds");
        write(&dir.join("file"), &field(50_000))?;
        ensure_eq!(
            report(&dir.join("file"), "codecs")?,
            "verbatim:raw",
            "and is done"
        );
        mount.remount()?;
    }
    // The packs alone are enough.
    mount.unmount()?;
    fs::remove_dir_all(mount.store().join("index"))?;
    mount.fsck(&["--rebuild"])?.status_is(1)?;
    mount.start()?;
    ensure_eq!(
        get(&dir, "user.shale.effective")?,
        explained,
        "after a rebuild"
    );
    mount.unmount()?;
    mount.fsck_is_clean()
}
