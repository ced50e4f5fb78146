//! The help texts, word for word. `UPDATE_HELP=1 cargo test -p shale --test help` updates them.

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

/// Every command that the main help lists, which therefore cannot be forgotten here.
fn commands() -> Vec<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_shale"))
        .arg("--help")
        .output()
        .unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let list = help.split("Commands:\n").nth(1).unwrap();
    let lines = list.lines().take_while(|line| !line.is_empty());
    // Descriptions continue in lines that are indented further.
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names
        .filter(|name| !name.is_empty() && *name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn help_texts_are_as_accepted() {
    check("shale");
    let commands = commands();
    assert!(commands.contains(&"mount".to_owned()), "{commands:?}");
    for command in commands {
        check(&command);
    }
}

#[test]
fn policy() {
    check("policy");
}
