//! Shares drawn as bars.

/// Cells of a whole bar.
const WIDTH: u64 = 10;
const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// Whether and how bars are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bars {
    None,
    /// In eighths of a cell.
    Blocks,
    /// For terminals with ASCII only.
    Plain,
}

impl Bars {
    /// Bars that this terminal can show.
    pub(super) fn wanted(wanted: bool) -> Self {
        if !wanted {
            return Self::None;
        }
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
            .iter()
            .filter_map(|name| std::env::var(name).ok())
            .find(|value| !value.is_empty())
            .unwrap_or_default()
            .to_ascii_lowercase();
        if locale.contains("utf-8") || locale.contains("utf8") {
            Self::Blocks
        } else {
            Self::Plain
        }
    }

    /// The bar for `part` of `whole`. It is visible unless the part is 0.
    pub(super) fn draw(self, part: Option<u64>, whole: u64) -> String {
        let Some(part) = part.filter(|&part| part > 0 && whole > 0) else {
            return String::new();
        };
        let share = |cells: u64| {
            let cells = u128::from(part.min(whole)) * u128::from(cells) / u128::from(whole);
            (cells as usize).max(1)
        };
        match self {
            Self::None => String::new(),
            Self::Plain => "#".repeat(share(WIDTH)),
            Self::Blocks => {
                let eighths = share(WIDTH * 8);
                let mut bar = "█".repeat(eighths / 8);
                if eighths % 8 > 0 {
                    bar.push(EIGHTHS[eighths % 8]);
                }
                bar
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_share() {
        for (part, bar, plain) in [
            (0, "", ""),
            (1, "▏", "#"),
            (500, "█████", "#####"),
            (512, "█████", "#####"),
            (513, "█████▏", "#####"),
            (1000, "██████████", "##########"),
            (5000, "██████████", "##########"),
        ] {
            assert_eq!(Bars::Blocks.draw(Some(part), 1000), bar, "{part}");
            assert_eq!(Bars::Plain.draw(Some(part), 1000), plain, "{part}");
        }
        assert_eq!(Bars::Blocks.draw(None, 1000), "");
        assert_eq!(Bars::Blocks.draw(Some(1), 0), "");
    }
}
