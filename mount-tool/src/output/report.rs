//! Reports on stdout: text for people, JSON for programs.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use serde::Serialize;

use super::SCHEMA;
use super::failure::{Failure, exit, reason};

/// A name or path as text. Bytes that are not UTF-8 are written as `\xff`.
pub(crate) fn name(name: impl AsRef<OsStr>) -> String {
    let mut text = String::new();
    for chunk in name.as_ref().as_bytes().utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// A name with control characters escaped, safe for tables and terminals.
pub(crate) fn printable(name: &str) -> String {
    let escape = |c: char| {
        if c.is_control() {
            c.escape_default().collect()
        } else {
            String::from(c)
        }
    };
    name.chars().map(escape).collect()
}

/// `1 file`, `2 files`.
pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {many}"),
    }
}

/// Writes to stdout. A reader that stops early (`| head`) is not an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new(
            exit::IO,
            format_args!(
                "cannot write the report: {}; check where the output goes",
                reason(&e)
            ),
        )),
        _ => Ok(()),
    }
}

/// A report in the form that all commands print.
#[derive(Debug, Serialize)]
pub(crate) struct Document<'a, T> {
    pub(crate) schema: u32,
    pub(crate) command: &'a str,
    #[serde(flatten)]
    pub(crate) report: &'a T,
}

/// A problem that a command lists in its report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Problem {
    /// The file or directory, if it is one.
    pub(crate) path: Option<String>,
    /// Where in the file.
    pub(crate) offset: Option<u64>,
    pub(crate) message: String,
    /// The exit status that it causes.
    pub(crate) status: u8,
}

/// Writes the report of a command as JSON, indented, with a final newline.
pub(crate) fn print_json(command: &str, report: &impl Serialize) -> Result<(), Failure> {
    let document = Document {
        schema: SCHEMA,
        command,
        report,
    };
    let mut text = serde_json::to_string_pretty(&document).map_err(|e| {
        Failure::new(
            exit::SOFTWARE,
            format_args!("cannot put the report into JSON: {e}; please report this"),
        )
    })?;
    text.push('\n');
    print(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_no_text_stay_different() {
        assert_eq!(name("été"), "été");
        assert_eq!(
            name(OsStr::from_bytes(b"a\xffb\xfe\xfd")),
            "a\\xffb\\xfe\\xfd"
        );
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(printable("a\nb\x1b[0mé"), "a\\nb\\u{1b}[0mé");
    }
}
