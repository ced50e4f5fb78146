//! A page as SVG.

use std::fmt::Write as _;

use super::{HEIGHT, Page, WIDTH};

pub(super) fn encode(page: &Page) -> String {
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for area in &page.areas {
        let [red, green, blue] = area.color;
        let _ = writeln!(
            text,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" \
             fill=\"#{red:02x}{green:02x}{blue:02x}\"/>",
            area.x, area.y, area.width, area.height
        );
    }
    for words in &page.words {
        let title = if words.title { " font-size=\"14\"" } else { "" };
        let centred = if words.centred {
            " text-anchor=\"middle\""
        } else {
            ""
        };
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\"{title}{centred}>{}</text>",
            words.x, words.y, words.text
        );
    }
    text.push_str("</svg>\n");
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::page;
    use super::*;

    #[test]
    fn all_of_the_page_is_there() {
        let page = page();
        let text = encode(&page);
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
        assert_eq!(text.matches("<rect").count(), 1 + page.areas.len());
        assert_eq!(text.matches(">400</text>").count(), 2);
        assert!(text.contains("fill=\"#2f7f79\""));
        assert!(!text.contains("NaN"));
    }
}
