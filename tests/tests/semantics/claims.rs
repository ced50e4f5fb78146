//! The tests that docs/security.md and docs/reliability.md name exist.

use std::fs;
use std::path::Path;

use shale_tests::{Case, Context, Outcome, ensure, root};

/// All sources of the workspace, and which files they are.
struct Sources {
    names: Vec<String>,
    text: String,
    makefile: String,
}

impl Sources {
    fn read() -> Outcome<Self> {
        let mut sources = Self {
            names: Vec::new(),
            text: String::new(),
            makefile: fs::read_to_string(root().join("Makefile"))?,
        };
        for krate in [
            "backing",
            "codec",
            "fs",
            "index",
            "layout",
            "mount-tool",
            "store",
            "tests",
        ] {
            for place in ["src", "tests"] {
                sources.add(&root().join(krate).join(place))?;
            }
        }
        Ok(sources)
    }

    fn add(&mut self, directory: &Path) -> Outcome {
        if !directory.is_dir() {
            return Ok(());
        }
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_dir() {
                self.add(&path)?;
            } else if path.extension().is_some_and(|suffix| suffix == "rs") {
                let stem = path.file_stem();
                // The file a folder is entered through has the folder's name.
                let entrance = stem.is_some_and(|stem| stem == "main" || stem == "mod");
                let name = if entrance {
                    directory.file_name()
                } else {
                    stem
                };
                self.names
                    .extend(name.map(|name| name.to_string_lossy().into()));
                self.text += &fs::read_to_string(&path)?;
            }
        }
        Ok(())
    }

    /// A test of a suite, or of a crate.
    fn has_test(&self, name: &str) -> bool {
        self.text.contains(&format!("\"{name}\"")) || self.text.contains(&format!("fn {name}()"))
    }

    /// A test, a suite, a module with tests, or a target of the Makefile.
    fn has(&self, word: &str) -> bool {
        let target = word.strip_prefix("make ").unwrap_or(word);
        self.has_test(word)
            || self.names.iter().any(|name| name == word)
            || self.makefile.contains(&format!("\n{target}:"))
    }
}

/// Words in backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Whether a word looks like the name of a test: a sentence with underscores.
fn is_name_of_a_test(word: &str) -> bool {
    word.chars()
        .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && word.matches('_').count() >= 3
}

pub(crate) fn every_claim(_: &Case) -> Outcome {
    let sources = Sources::read()?;
    // In two pieces, because this file is a source as well.
    let missing = ["no_test", "is_called_that"].join("_");
    ensure!(!sources.has_test(&missing), "everything is found");
    let mut claims = 0;
    for name in ["docs/security.md", "docs/reliability.md"] {
        let document = fs::read_to_string(root().join(name))?;
        for word in quoted(&document).filter(|word| is_name_of_a_test(word)) {
            ensure!(
                sources.has_test(word),
                "{name} names {word}, which is not a test"
            );
        }
        if name != "docs/security.md" {
            continue;
        }
        let rows = document.lines().filter(|line| line.starts_with("| "));
        for row in rows.skip(1) {
            let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
            let tests = cells.get(2).doing(format!("three cells in {row}"))?;
            ensure!(quoted(tests).next().is_some(), "no test for {row}");
            for word in quoted(tests) {
                ensure!(sources.has(word), "{name} names {word}, which is not there");
            }
            claims += 1;
        }
    }
    ensure!(claims > 10, "only {claims} claims were found");
    Ok(())
}
