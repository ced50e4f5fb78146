//! Throughputs as a plot: areas and words on a page, written as SVG or PNG.

mod font;
mod png;
mod svg;

use std::path::PathBuf;

use super::model::Throughput;

/// The page. All positions are in its units.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 310.0;
const COLORS: [Color; 3] = [[0x9a, 0xa5, 0xb1], [0xd9, 0xa4, 0x41], [0x2f, 0x7f, 0x79]];
const BLACK: Color = [0; 3];
const WAYS: [&str; 3] = ["base", "one by one", "interleaved"];

/// Red, green and blue.
type Color = [u8; 3];

/// The file of a plot. The end of its name selects the format.
#[derive(Clone, Debug)]
pub(crate) struct Picture {
    pub(super) path: PathBuf,
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Svg,
    Png,
}

impl Picture {
    /// Checks the name, before anything else is done.
    pub(super) fn new(path: PathBuf) -> Result<Self, String> {
        let ending = path.extension().map(|ending| ending.to_ascii_lowercase());
        let format = match ending.as_ref().and_then(|ending| ending.to_str()) {
            Some("svg") => Format::Svg,
            Some("png") => Format::Png,
            _ => return Err("give a name that ends in .svg or .png".to_owned()),
        };
        Ok(Self { path, format })
    }

    /// Groups of three bars.
    pub(super) fn draw(&self, groups: &[(&str, &Throughput)]) -> Vec<u8> {
        let page = Page::of(groups);
        match self.format {
            Format::Svg => svg::encode(&page).into_bytes(),
            Format::Png => png::encode(&page),
        }
    }
}

/// The contents of the page. Words are drawn over areas.
#[derive(Debug, Default)]
struct Page {
    areas: Vec<Area>,
    words: Vec<Words>,
}

#[derive(Debug)]
struct Area {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
    color: Color,
}

#[derive(Debug)]
struct Words {
    /// Their start, or their middle, on the baseline.
    x: f64,
    y: f64,
    centred: bool,
    title: bool,
    text: String,
}

impl Page {
    fn of(groups: &[(&str, &Throughput)]) -> Self {
        let values = |way: &Throughput| [way.base, way.one_by_one, way.interleaved];
        let most = groups
            .iter()
            .flat_map(|(_, way)| values(way))
            .fold(1.0, f64::max);
        let mut page = Self::default();
        page.words.push(Words {
            x: LEFT,
            y: 20.0,
            centred: false,
            title: true,
            text: "Throughput of programs, MB/s".to_owned(),
        });
        for (number, (way, color)) in WAYS.iter().zip(COLORS).enumerate() {
            let x = LEFT + 130.0 * number as f64;
            page.area([x, 28.0, 10.0, 10.0], color);
            page.words.push(Words {
                x: x + 15.0,
                y: 37.0,
                centred: false,
                title: false,
                text: (*way).to_owned(),
            });
        }
        let group = (WIDTH - LEFT - 20.0) / groups.len().max(1) as f64;
        let bar = group / 4.0;
        for (place, (name, way)) in groups.iter().enumerate() {
            let x = LEFT + group * place as f64;
            for (number, (value, color)) in values(way).into_iter().zip(COLORS).enumerate() {
                let height = (BOTTOM - TOP - 15.0) * value / most;
                let x = x + bar * number as f64;
                page.area([x, BOTTOM - height, bar * 0.9, height], color);
                let text = format!("{:.0}", value / 1e6);
                page.centred(x + bar * 0.45, BOTTOM - height - 4.0, text);
            }
            page.centred(x + bar * 1.45, BOTTOM + 20.0, (*name).to_owned());
        }
        page.area([LEFT, BOTTOM, WIDTH - LEFT - 20.0, 1.0], BLACK);
        page
    }

    fn area(&mut self, [x, y, width, height]: [f64; 4], color: Color) {
        self.areas.push(Area {
            x,
            y,
            width,
            height,
            color,
        });
    }

    fn centred(&mut self, x: f64, y: f64, text: String) {
        self.words.push(Words {
            x,
            y,
            centred: true,
            title: false,
            text,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn page() -> Page {
        let way = Throughput {
            base: 200e6,
            one_by_one: 150e6,
            interleaved: 400e6,
        };
        Page::of(&[("written", &way), ("read", &way)])
    }

    #[test]
    fn every_bar_is_drawn_and_labelled() {
        let page = page();
        assert_eq!(page.areas.len(), 3 + 6 + 1);
        let said = |text: &str| page.words.iter().filter(|words| words.text == text).count();
        assert_eq!((said("400"), said("read"), said("base")), (2, 1, 1));
        for area in &page.areas {
            assert!(area.x >= 0.0 && area.x + area.width <= WIDTH, "{area:?}");
            assert!(area.y >= 0.0 && area.y + area.height <= HEIGHT, "{area:?}");
        }
    }

    #[test]
    fn the_name_decides_the_format_and_others_are_refused() {
        let format = |name: &str| Picture::new(name.into()).map(|picture| picture.format);
        assert_eq!(format("a/run1.svg"), Ok(Format::Svg));
        assert_eq!(format("run1.PNG"), Ok(Format::Png));
        for name in ["run1", "run1.pdf", "png", ".svg", "run1.svg/x"] {
            assert!(format(name).is_err(), "{name}");
        }
    }
}
