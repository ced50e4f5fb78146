//! The help texts, word for word. `UPDATE_HELP=1 cargo test -p shale --test help` writes them
//! anew.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

fn check(command: &str) {
    let mut shale = Command::new(env!("CARGO_BIN_EXE_shale"));
    if command != "shale" {
        shale.arg(command);
    }
    let output = shale.arg("--help").env("COLUMNS", "100").output().unwrap();
    assert!(output.status.success());
    assert!(output.stderr.is_empty());
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(help.contains("Examples:\n"), "{command} has no examples");
    assert!(
        help.lines().all(|line| line.chars().count() <= 100),
        "{command} has long lines"
    );

    let snapshot = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/help")
        .join(format!("{command}.txt"));
    if std::env::var_os("UPDATE_HELP").is_some() {
        std::fs::write(&snapshot, &help).unwrap();
    }
    let expected = std::fs::read_to_string(&snapshot).unwrap();
    assert_eq!(
        help, expected,
        "see the head of this file for how to accept the change"
    );
}

#[test]
fn shale() {
    check("shale");
}

#[test]
fn mount() {
    check("mount");
}

#[test]
fn unmount() {
    check("unmount");
}

#[test]
fn stat() {
    check("stat");
}

#[test]
fn fsck() {
    check("fsck");
}

#[test]
fn demo() {
    check("demo");
}

#[test]
fn settle() {
    check("settle");
}

#[test]
fn gc() {
    check("gc");
}

#[test]
fn layout() {
    check("layout");
}
