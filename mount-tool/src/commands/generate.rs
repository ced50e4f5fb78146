//! `shale generate`, for `make install`: manual pages and shell completions from the definition of
//! the command line, so that they always agree with the command.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::StyledStr;
use clap::{Arg, ArgAction, Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::output::failure::{Failure, exit};

/// The arguments.
#[derive(Args, Debug)]
pub(crate) struct GenerateArgs {
    /// Date of the manual pages, as 2026-01-31
    #[arg(long, default_value = "")]
    pub(crate) date: String,
    /// Directory to write to; created if missing
    pub(crate) directory: PathBuf,
}

/// Documents the command line whose definition is `shale`.
pub(crate) fn run(args: &GenerateArgs, shale: Command) -> Result<ExitCode, Failure> {
    write(&args.directory, shale, &args.date).map_err(|e| {
        Failure::io("write to", &args.directory, &e).with_status(exit::CANNOT_CREATE)
    })?;
    Ok(ExitCode::SUCCESS)
}

fn write(directory: &Path, mut shale: Command, date: &str) -> io::Result<()> {
    for (shell, name) in [
        (Shell::Bash, "bash"),
        (Shell::Zsh, "zsh"),
        (Shell::Fish, "fish"),
    ] {
        let directory = directory.join(name);
        std::fs::create_dir_all(&directory)?;
        clap_complete::generate_to(shell, &mut shale.clone(), "shale", directory)?;
    }
    shale.build();
    let shale = &shale;
    let pages = directory.join("man1");
    std::fs::create_dir_all(&pages)?;
    std::fs::write(pages.join("shale.1"), page(shale, shale, date)?)?;
    for command in commands(shale) {
        let name = command.get_name();
        let file = pages.join(format!("shale-{name}.1"));
        std::fs::write(file, page(shale, command, date)?)?;
        for alias in command.get_visible_aliases() {
            let link = pages.join(format!("shale-{alias}.1"));
            match std::fs::remove_file(&link) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
            std::os::unix::fs::symlink(format!("shale-{name}.1"), link)?;
        }
    }
    Ok(())
}

/// The commands that are documented.
fn commands(shale: &Command) -> impl Iterator<Item = &Command> {
    let all = shale.get_subcommands();
    all.filter(|command| !command.is_hide_set() && command.get_name() != "help")
}

/// One manual page.
fn page(shale: &Command, command: &Command, date: &str) -> io::Result<Vec<u8>> {
    let whole = command.get_name() == shale.get_name();
    let name = if whole {
        "SHALE".to_owned()
    } else {
        format!("SHALE-{}", command.get_name().to_uppercase())
    };
    let version = env!("CARGO_PKG_VERSION");
    let man = Man::new(command.clone().version(version));
    let mut text = Vec::new();
    // All five are quoted: roff would skip an empty one.
    writeln!(
        text,
        ".TH \"{}\" \"1\" \"{date}\" \"shale {version}\" \"ShaleFS Manual\"",
        escape(&name)
    )?;
    man.render_name_section(&mut text)?;
    write!(text, ".SH SYNOPSIS\n{}", synopsis(command, whole))?;
    man.render_description_section(&mut text)?;
    if command
        .get_arguments()
        .any(|argument| !argument.is_hide_set())
    {
        man.render_options_section(&mut text)?;
    }
    let mut rest = without_double_breaks(text)?;
    if whole {
        rest.push_str(".SH COMMANDS\n");
        for command in commands(shale) {
            let about = command.get_about().map(ToString::to_string);
            rest.push_str(&format!(
                ".TP\n\\fBshale\\-{}\\fR(1)\n{}\n",
                escape(command.get_name()),
                escape(&about.unwrap_or_default())
            ));
        }
    }
    if !whole && command.has_subcommands() {
        rest.push_str(".SH SUBCOMMANDS\n");
        commands(command).for_each(|part| rest.push_str(&subcommand(part)));
    }
    if let Some(help) = command.get_after_help() {
        rest.push_str(&sections(&help.to_string()));
    }
    rest.push_str(".SH SEE ALSO\n");
    rest.push_str(if whole {
        "\\fBmount.fuse.shale\\fR(8)\n"
    } else {
        "\\fBshale\\fR(1), \\fBmount.fuse.shale\\fR(8)\n"
    });
    Ok(rest.into_bytes())
}

/// The synopsis of a command, with the values of its options.
fn synopsis(command: &Command, whole: bool) -> String {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let mut text = format!("\\fB{}\\fR", escape(name));
    let shown = |argument: &&Arg| !argument.is_hide_set() && argument.get_id() != "help";
    for argument in command.get_arguments().filter(shown) {
        text.push('\n');
        text.push_str(&call(argument));
    }
    if command.has_subcommands() {
        text.push_str("\n\\fICOMMAND\\fR [\\fIARGUMENT\\fR...]");
    }
    text.push('\n');
    if whole {
        text.push_str(&format!(
            ".br\n\\fB{0}\\fR \\fICOMMAND\\fR \\fB\\-\\-help\\fR\n",
            escape(name)
        ));
    }
    text
}

/// An argument in a synopsis: `[-s|--sort ORDER]`, `STORE`, `[PATH...]`.
fn call(argument: &Arg) -> String {
    let values: Vec<String> = argument
        .get_value_names()
        .unwrap_or_default()
        .iter()
        .map(|name| format!("\\fI{}\\fR", escape(name)))
        .collect();
    let takes_value = argument.get_action().takes_values();
    let values = if takes_value {
        values.join(" ")
    } else {
        String::new()
    };
    let again = matches!(argument.get_action(), ArgAction::Append);
    let text = if argument.is_positional() {
        format!("{values}{}", if again { "..." } else { "" })
    } else {
        let short = argument.get_short().map(|letter| format!("-{letter}"));
        let long = argument.get_long().map(|word| format!("--{word}"));
        let flags: Vec<String> = [short, long]
            .into_iter()
            .flatten()
            .map(|flag| format!("\\fB{}\\fR", escape(&flag)))
            .collect();
        let gap = if takes_value { " " } else { "" };
        format!("{}{gap}{values}", flags.join("|"))
    };
    match (
        argument.is_required_set(),
        again && !argument.is_positional(),
    ) {
        (true, _) => text,
        (false, true) => format!("[{text}]..."),
        (false, false) => format!("[{text}]"),
    }
}

/// The usage of a subcommand, what it does, and its own arguments.
fn subcommand(part: &Command) -> String {
    let usage = part.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage);
    let words =
        |text: Option<&StyledStr>| escape(&text.map_or_else(String::new, |text| text.to_string()));
    let mut text = format!(
        ".TP\n\\fB{}\\fR\n{}\n.RS\n",
        escape(usage),
        words(part.get_about())
    );
    let own = |argument: &&Arg| {
        !argument.is_hide_set() && !argument.is_global_set() && argument.get_id() != "help"
    };
    for argument in part.get_arguments().filter(own) {
        let name = call(argument);
        let name = name.trim_matches(['[', ']']);
        text.push_str(&format!(".TP\n{name}\n{}\n", words(argument.get_help())));
    }
    text.push_str(".RE\n");
    text
}

/// clap_mangen puts an empty line between two breaks before a list of values. Formatters complain
/// about that.
fn without_double_breaks(text: Vec<u8>) -> io::Result<String> {
    let text = String::from_utf8(text).map_err(io::Error::other)?;
    Ok(text.replace(".br\n\n.br\n", ".sp\n"))
}

/// The text below the options of a help text. A block that begins with a heading is kept line by
/// line. Any other block is a paragraph.
fn sections(help: &str) -> String {
    let mut text = String::new();
    let mut in_notes = false;
    let mut heading: Option<String> = None;
    for block in help.split("\n\n") {
        let (first, body) = block.split_once('\n').unwrap_or((block, ""));
        let is_heading = !first.starts_with(' ') && first.trim_end().ends_with(':');
        // An indented block continues the section before it.
        let goes_on = heading.is_some() && first.starts_with(' ');
        if !is_heading && !goes_on {
            text.push_str(if in_notes { ".PP\n" } else { ".SH NOTES\n" });
            for line in block.lines() {
                text.push_str(&escape(line.trim()));
                text.push('\n');
            }
            (in_notes, heading) = (true, None);
            continue;
        }
        let mut lines = block;
        if is_heading {
            let end = first.find([':', ',', '(']).unwrap_or(first.len());
            let title = first[..end].trim().to_uppercase();
            text.push_str(&format!(".SH {}\n", escape(&title)));
            heading = Some(title);
            lines = body;
        }
        in_notes = false;
        text.push_str(".EX\n");
        for line in lines.lines() {
            text.push_str(&escape(line.strip_prefix("  ").unwrap_or(line)));
            text.push('\n');
        }
        text.push_str(".EE\n");
    }
    text
}

/// Text escaped for roff.
fn escape(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    match text.chars().next() {
        Some('.' | '\'') => format!("\\&{text}"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_paragraphs_and_examples_are_told_apart() {
        let help = "Some words\non two lines.\n\nExit status, as fsck(8):\n  0 clean\n\nExamples:\n  .x \\ y\n\n  z";
        assert_eq!(
            sections(help),
            ".SH NOTES\nSome words\non two lines.\n.SH EXIT STATUS\n.EX\n0 clean\n.EE\n\
             .SH EXAMPLES\n.EX\n\\&.x \\e y\n.EE\n.EX\nz\n.EE\n"
        );
    }
}
