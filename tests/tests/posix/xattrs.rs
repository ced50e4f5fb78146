//! Extended attributes.

use std::fs;
use std::os::unix::fs::symlink;

use rustix::fs::{
    XattrFlags, getxattr, lgetxattr, listxattr, lremovexattr, lsetxattr, removexattr, setxattr,
};
use rustix::io::Errno;
use shale_tests::{Case, Cmd, Outcome, Rng, ensure, ensure_eq};
use std::path::Path;

fn names(path: &Path) -> Outcome<Vec<String>> {
    let mut list = vec![0; 65536];
    let length = listxattr(path, &mut list[..])?;
    let mut names: Vec<String> = list[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect();
    names.sort();
    Ok(names)
}

fn value(path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; 65536];
    let length = getxattr(path, name, &mut value[..])?;
    value.truncate(length);
    Ok(value)
}

pub(crate) fn create_replace_list_remove(case: &Case) -> Outcome {
    let mut fs = case.fs()?;
    let path = fs.at("file");
    fs::write(&path, b"x")?;
    ensure_eq!(
        value(&path, "user.a"),
        Err(Errno::NODATA),
        "an attribute that is not there"
    );
    ensure_eq!(
        setxattr(&path, "user.a", b"1", XattrFlags::REPLACE),
        Err(Errno::NODATA),
        "REPLACE of nothing"
    );
    setxattr(&path, "user.a", b"1", XattrFlags::CREATE)?;
    ensure_eq!(
        setxattr(&path, "user.a", b"2", XattrFlags::CREATE),
        Err(Errno::EXIST),
        "CREATE of what exists"
    );
    ensure_eq!(value(&path, "user.a")?, b"1", "after a refused CREATE");
    setxattr(&path, "user.a", b"second", XattrFlags::REPLACE)?;
    setxattr(&path, "user.binary", b"\0\x01\xff\0", XattrFlags::empty())?;
    setxattr(&path, "user.empty", b"", XattrFlags::empty())?;
    setxattr(&path, "user.gone", b"x", XattrFlags::empty())?;
    removexattr(&path, "user.gone")?;
    ensure_eq!(
        removexattr(&path, "user.gone"),
        Err(Errno::NODATA),
        "removing twice"
    );
    ensure_eq!(
        getxattr(&path, "user.a", &mut [0u8; 3][..]),
        Err(Errno::RANGE),
        "a buffer that is too small"
    );
    let hard = fs.at("hard");
    fs::hard_link(&path, &hard)?;
    fs.refresh()?;
    for name in [&path, &hard] {
        ensure_eq!(
            value(name, "user.a")?,
            b"second",
            "user.a of {}",
            name.display()
        );
        ensure_eq!(
            value(name, "user.binary")?,
            b"\0\x01\xff\0",
            "user.binary of {}",
            name.display()
        );
        ensure_eq!(
            value(name, "user.empty")?,
            b"",
            "user.empty of {}",
            name.display()
        );
        ensure_eq!(
            names(name)?,
            ["user.a", "user.binary", "user.empty"],
            "the list of {}",
            name.display()
        );
    }
    ensure_eq!(
        listxattr(&path, &mut [0u8; 5][..]),
        Err(Errno::RANGE),
        "a list that does not fit"
    );
    fs.finish()
}

pub(crate) fn limits(case: &Case) -> Outcome {
    let fs = case.fs()?;
    let path = fs.at("file");
    fs::write(&path, b"x")?;
    let longest = format!("user.{}", "n".repeat(250));
    setxattr(&path, &longest, b"long name", XattrFlags::empty())?;
    ensure_eq!(value(&path, &longest)?, b"long name", "a name of 255 bytes");
    let longer = format!("user.{}", "n".repeat(251));
    ensure_eq!(
        setxattr(&path, &longer, b"x", XattrFlags::empty()),
        Err(Errno::RANGE),
        "a name of 256 bytes"
    );
    ensure_eq!(
        setxattr(&path, "user.", b"x", XattrFlags::empty()),
        Err(Errno::INVAL),
        "an empty name"
    );

    let mut rng = Rng::new(21);
    let three = rng.bytes(3000);
    setxattr(&path, "user.value", &three, XattrFlags::empty())?;
    ensure_eq!(value(&path, "user.value")?, three, "3000 bytes");
    let largest = rng.bytes(65_536);
    // File systems differ in what they can hold, but not in refusing cleanly.
    match setxattr(&path, "user.value", &largest, XattrFlags::empty()) {
        Ok(()) => ensure_eq!(value(&path, "user.value")?, largest, "65536 bytes"),
        Err(Errno::NOSPC | Errno::TOOBIG) => {
            ensure_eq!(value(&path, "user.value")?, three, "after a refusal")
        }
        Err(other) => return Err(other.into()),
    }
    let beyond = rng.bytes(65_537);
    ensure_eq!(
        setxattr(&path, "user.beyond", &beyond, XattrFlags::empty()),
        Err(Errno::TOOBIG),
        "65537 bytes"
    );

    let many = fs.at("many");
    fs::write(&many, b"x")?;
    for index in 0..50 {
        setxattr(
            &many,
            format!("user.number-{index}"),
            format!("{index}").as_bytes(),
            XattrFlags::empty(),
        )?;
    }
    ensure_eq!(names(&many)?.len(), 50, "attributes of one file");
    for index in 0..50 {
        ensure_eq!(
            value(&many, &format!("user.number-{index}"))?,
            format!("{index}").as_bytes(),
            "number {index}"
        );
    }
    fs.finish()
}

pub(crate) fn namespaces(case: &Case) -> Outcome {
    let fs = case.fs()?;
    let path = fs.at("file");
    let directory = fs.at("directory");
    let link = fs.at("link");
    fs::write(&path, b"x")?;
    fs::create_dir(&directory)?;
    symlink("file", &link)?;
    for target in [&path, &directory] {
        setxattr(target, "user.u", b"user", XattrFlags::empty())?;
        setxattr(target, "trusted.t", b"trusted", XattrFlags::empty())?;
        setxattr(target, "security.s", b"security", XattrFlags::empty())?;
        ensure_eq!(
            names(target)?,
            ["security.s", "trusted.t", "user.u"],
            "all namespaces"
        );
    }
    ensure_eq!(
        setxattr(&path, "foreign.f", b"x", XattrFlags::empty()),
        Err(Errno::OPNOTSUPP),
        "a namespace that does not exist"
    );
    lsetxattr(&link, "trusted.link", b"of the link", XattrFlags::empty())?;
    let mut seen = [0; 11];
    lgetxattr(&link, "trusted.link", &mut seen[..])?;
    ensure_eq!(&seen, b"of the link", "an attribute of a symbolic link");
    ensure_eq!(
        value(&path, "trusted.link"),
        Err(Errno::NODATA),
        "the target has none of it"
    );
    ensure_eq!(
        lsetxattr(&link, "user.link", b"x", XattrFlags::empty()),
        Err(Errno::PERM),
        "user.* on a link"
    );
    lremovexattr(&link, "trusted.link")?;

    let as_nobody = |script: &str| {
        Cmd::shell(script)
            .env("F", &path)
            .user(65_534, 65_534)
            .run()
    };
    let listed = as_nobody("getfattr --absolute-names -d -m - \"$F\"")?
        .success()?
        .text();
    ensure!(
        listed.contains("user.u"),
        "another user cannot see user.u: {listed}"
    );
    ensure!(
        !listed.contains("trusted.t"),
        "another user can see trusted.t: {listed}"
    );
    let refused = as_nobody("setfattr -n trusted.t -v 1 \"$F\"")?;
    ensure!(!refused.status.success(), "another user may set trusted.t");
    let refused = as_nobody("setfattr -n user.u -v 1 \"$F\"")?;
    ensure!(
        !refused.status.success(),
        "another user may set user.u of a file that is not writable"
    );
    ensure_eq!(value(&path, "user.u")?, b"user", "user.u");
    ensure_eq!(value(&path, "trusted.t")?, b"trusted", "trusted.t");
    fs.finish()
}
