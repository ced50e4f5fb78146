//! Throughputs as an SVG picture.

use std::fmt::Write as _;

use super::model::Throughput;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 310.0;
const COLORS: [&str; 3] = ["#9aa5b1", "#d9a441", "#2f7f79"];
const WAYS: [&str; 3] = ["base", "one by one", "interleaved"];

/// Groups of three bars.
pub(super) fn svg(groups: &[(&str, &Throughput)]) -> String {
    let values = |way: &Throughput| [way.base, way.one_by_one, way.interleaved];
    let most = groups
        .iter()
        .flat_map(|(_, way)| values(way))
        .fold(1.0, f64::max);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"14\">Throughput of programs, MB/s</text>\n"
    );
    for (number, (way, color)) in WAYS.iter().zip(COLORS).enumerate() {
        let x = LEFT + 130.0 * number as f64;
        let _ = writeln!(
            text,
            "<rect x=\"{x}\" y=\"28\" width=\"10\" height=\"10\" fill=\"{color}\"/>\
             <text x=\"{}\" y=\"37\">{way}</text>",
            x + 15.0
        );
    }
    let group = (WIDTH - LEFT - 20.0) / groups.len().max(1) as f64;
    let bar = group / 4.0;
    for (place, (name, way)) in groups.iter().enumerate() {
        let x = LEFT + group * place as f64;
        for (number, (value, color)) in values(way).into_iter().zip(COLORS).enumerate() {
            let height = (BOTTOM - TOP - 15.0) * value / most;
            let x = x + bar * number as f64;
            let _ = writeln!(
                text,
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\" \
                 fill=\"{color}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{:.0}</text>",
                BOTTOM - height,
                bar * 0.9,
                x + bar * 0.45,
                BOTTOM - height - 4.0,
                value / 1e6
            );
        }
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{name}</text>",
            x + bar * 1.45,
            BOTTOM + 20.0
        );
    }
    let _ = writeln!(
        text,
        "<line x1=\"{LEFT}\" y1=\"{BOTTOM}\" x2=\"{}\" y2=\"{BOTTOM}\" stroke=\"black\"/>\n</svg>",
        WIDTH - 20.0
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bar_is_drawn_and_labelled() {
        let way = Throughput {
            base: 200e6,
            one_by_one: 150e6,
            interleaved: 400e6,
        };
        let text = svg(&[("written", &way), ("read", &way)]);
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
        assert_eq!(text.matches("<rect").count(), 1 + 3 + 6);
        assert_eq!(text.matches(">400</text>").count(), 2);
        assert!(text.contains(">read</text>"));
        assert!(!text.contains("NaN"));
    }
}
