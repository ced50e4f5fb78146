//! A font of five by seven dots, and two more below the baseline, with the letters that a plot
//! needs.

/// Width of a letter in dots, and its height above the baseline.
pub(super) const WIDTH: usize = 5;
pub(super) const ASCENT: usize = 7;
/// Distance from one letter to the next.
pub(super) const STEP: usize = WIDTH + 1;

/// Rows of letters, each with its dots.
const ROWS: &[(&str, [&str; 9])] = &[
    (
        "abcdefghijklmn",
        [
            "      #               #         ##        #       #      #  #      ##              ",
            "      #               #        #  #       #                 #       #              ",
            " ###  # ##   ###   ## #  ###   #     #### # ##   ##     ##  #  #    #   ## #  # ## ",
            "    # ##  # #     #  ## #   # ###   #   # ##  #   #      #  # #     #   # # # ##  #",
            " #### #   # #     #   # #####  #    #   # #   #   #      #  ##      #   # # # #   #",
            "#   # #   # #   # #   # #      #    #   # #   #   #      #  # #     #   # # # #   #",
            " #### ####   ###   ####  ###   #     #### #   #  ###     #  #  #   ###  # # # #   #",
            "                                        #             #  #                         ",
            "                                     ###               ##                          ",
        ],
    ),
    (
        "opqrstuvwxyzBM",
        [
            "                               #                                        ####  #   #",
            "                               #                                        #   # ## ##",
            " ###  ####   #### # ##   #### ###   #   # #   # #   # #   # #   # ##### #   # # # #",
            "#   # #   # #   # ##  # #      #    #   # #   # #   #  # #  #   #    #  ####  # # #",
            "#   # #   # #   # #      ###   #    #   # #   # # # #   #   #   #   #   #   # #   #",
            "#   # #   # #   # #         #  #  # #  ##  # #  # # #  # #  #   #  #    #   # #   #",
            " ###  ####   #### #     ####    ##   ## #   #    # #  #   #  #### ##### ####  #   #",
            "      #         #                                               #                  ",
            "      #         #                                            ###                   ",
        ],
    ),
    (
        "T/,0123456789",
        [
            "#####              ###    #    ###  #####    #  #####   ##  #####  ###   ### ",
            "  #       #       #   #  ##   #   #    #    ##  #      #        # #   # #   #",
            "  #      #        #  ##   #       #   #    # #  ####  #        #  #   # #   #",
            "  #     #         # # #   #      #     #  #  #      # ####    #    ###   ####",
            "  #    #          ##  #   #     #       # #####     # #   #  #    #   #     #",
            "  #   #      ##   #   #   #    #    #   #    #  #   # #   #  #    #   #    # ",
            "  #          ##    ###   ###  #####  ###     #   ###   ###   #     ###   ##  ",
            "              #                                                              ",
            "             #                                                               ",
        ],
    ),
];

/// The dots of a letter, as columns and rows from its top left; none for a blank or an unknown
/// letter.
pub(super) fn dots(letter: char) -> impl Iterator<Item = (usize, usize)> {
    let found = ROWS.iter().find_map(|(letters, lines)| {
        let place = letters.find(letter)?;
        Some((place * STEP, lines))
    });
    found.into_iter().flat_map(|(left, lines)| {
        lines.iter().enumerate().flat_map(move |(y, line)| {
            let cells = line.bytes().skip(left).take(WIDTH).enumerate();
            cells.filter_map(move |(x, cell)| (cell == b'#').then_some((x, y)))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_do_not_run_into_each_other() {
        for (letters, lines) in ROWS {
            for line in lines {
                assert_eq!(line.len(), letters.len() * STEP - 1, "{letters}: {line}");
                let between = line.bytes().skip(WIDTH).step_by(STEP);
                assert!(between.into_iter().all(|cell| cell == b' '), "{line}");
            }
        }
        let slash: Vec<_> = dots('/').collect();
        assert_eq!(slash, [(4, 1), (3, 2), (2, 3), (1, 4), (0, 5)]);
        assert_eq!(dots(' ').count(), 0);
    }
}
