//! A page as PNG. With few colours and large areas, run lengths are all the compression it needs.

use super::{Color, HEIGHT, Page, WIDTH, font};

/// Dots per unit of the page, so that it is sharp on fine screens.
const SCALE: f64 = 2.0;
const COLUMNS: usize = (WIDTH * SCALE) as usize;
const LINES: usize = (HEIGHT * SCALE) as usize;
/// Size of the dots of letters.
const LETTER: usize = 2;
const TITLE_LETTER: usize = 3;

const WHITE: Color = [255; 3];
/// Bits per dot, which is the number of a colour.
const DEPTH: usize = 4;

const MAGIC: [u8; 8] = *b"\x89PNG\r\n\x1a\n";
/// Each line is stored as the difference from the line above.
const FILTER_UP: u8 = 2;
/// Colour type: dots are indices into a palette.
const PALETTE: u8 = 3;

pub(super) fn encode(page: &Page) -> Vec<u8> {
    let dots = Dots::of(page);
    let mut head = Vec::new();
    head.extend((COLUMNS as u32).to_be_bytes());
    head.extend((LINES as u32).to_be_bytes());
    head.extend([DEPTH as u8, PALETTE, 0, 0, 0]);
    let mut file = MAGIC.to_vec();
    chunk(&mut file, *b"IHDR", &head);
    chunk(&mut file, *b"PLTE", &dots.colors.concat());
    chunk(&mut file, *b"IDAT", &zlib(&dots.filtered()));
    chunk(&mut file, *b"IEND", &[]);
    file
}

/// The page as numbers of colours, line by line.
struct Dots {
    colors: Vec<Color>,
    dots: Vec<u8>,
}

impl Dots {
    fn of(page: &Page) -> Self {
        let mut dots = Self {
            colors: vec![WHITE],
            dots: vec![0; COLUMNS * LINES],
        };
        let scaled = |place: f64| (place * SCALE).round().max(0.0) as usize;
        for area in &page.areas {
            let color = dots.number(area.color);
            let (left, right) = (scaled(area.x), scaled(area.x + area.width));
            let (top, bottom) = (scaled(area.y), scaled(area.y + area.height));
            dots.fill((left, right), (top, bottom), color);
        }
        let black = dots.number(super::BLACK);
        for words in &page.words {
            let large = if words.title { TITLE_LETTER } else { LETTER };
            let length = words.text.chars().count() * font::STEP * large;
            let middle = if words.centred { length / 2 } else { 0 };
            let left = scaled(words.x).saturating_sub(middle);
            let top = scaled(words.y).saturating_sub(font::ASCENT * large);
            for (place, letter) in words.text.chars().enumerate() {
                let left = left + place * font::STEP * large;
                for (x, y) in font::dots(letter) {
                    let (x, y) = (left + x * large, top + y * large);
                    dots.fill((x, x + large), (y, y + large), black);
                }
            }
        }
        dots
    }

    /// The number of a colour. There are fewer than a dot can hold.
    fn number(&mut self, color: Color) -> u8 {
        let found = self.colors.iter().position(|known| *known == color);
        let number = found.unwrap_or_else(|| {
            self.colors.push(color);
            self.colors.len() - 1
        });
        number as u8
    }

    fn fill(&mut self, (left, right): (usize, usize), (top, bottom): (usize, usize), color: u8) {
        let lines = self.dots.chunks_exact_mut(COLUMNS);
        for line in lines.take(bottom).skip(top) {
            line.iter_mut()
                .take(right)
                .skip(left)
                .for_each(|dot| *dot = color);
        }
    }

    /// Packed lines, each after its filter.
    fn filtered(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut above = vec![0; COLUMNS * DEPTH / 8];
        for line in self.dots.chunks_exact(COLUMNS) {
            let pairs = line.chunks_exact(8 / DEPTH);
            let packed: Vec<u8> = pairs
                .map(|pair| pair.iter().fold(0, |byte, dot| byte << DEPTH | dot))
                .collect();
            bytes.push(FILTER_UP);
            bytes.extend(packed.iter().zip(&above).map(|(a, b)| a.wrapping_sub(*b)));
            above = packed;
        }
        bytes
    }
}

fn chunk(file: &mut Vec<u8>, name: [u8; 4], data: &[u8]) {
    file.extend((data.len() as u32).to_be_bytes());
    let begin = file.len();
    file.extend(name);
    file.extend(data);
    let checksum = crc32(&file[begin..]);
    file.extend(checksum.to_be_bytes());
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |checksum, &byte| {
        (0..8).fold(checksum ^ u32::from(byte), |checksum, _| {
            checksum >> 1 ^ (0xedb8_8320 * (checksum & 1))
        })
    })
}

fn adler32(bytes: &[u8]) -> u32 {
    let (low, high) = bytes.iter().fold((1, 0), |(low, high), &byte| {
        let low = (low + u32::from(byte)) % 65_521;
        (low, (high + low) % 65_521)
    });
    high << 16 | low
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    // The method, and a window of 32 KiB.
    let mut stream = vec![0x78, 0x01];
    stream.extend(deflate(bytes));
    stream.extend(adler32(bytes).to_be_bytes());
    stream
}

/// One DEFLATE block with fixed codes. Only runs of one byte are matches.
fn deflate(bytes: &[u8]) -> Vec<u8> {
    const END: u32 = 256;
    let mut bits = Bits::default();
    bits.put(1, 1);
    bits.put(1, 2);
    for run in bytes.chunk_by(|a, b| a == b) {
        let literal = u32::from(run[0]);
        bits.symbol(literal);
        let mut rest = run.len() as u32 - 1;
        while rest >= 3 {
            let length = rest.min(258);
            bits.repeat(length);
            rest -= length;
        }
        (0..rest).for_each(|_| bits.symbol(literal));
    }
    bits.symbol(END);
    bits.put(0, 7);
    bits.bytes
}

/// Bits, the lowest of each byte first.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    held: u32,
    count: u32,
}

impl Bits {
    fn put(&mut self, value: u32, count: u32) {
        self.held |= value << self.count;
        self.count += count;
        while self.count >= 8 {
            self.bytes.push(self.held as u8);
            self.held >>= 8;
            self.count -= 8;
        }
    }

    /// A literal, a length or the end; their highest bit is first.
    fn symbol(&mut self, symbol: u32) {
        let (code, count) = match symbol {
            0..=143 => (0x30 + symbol, 8),
            144..=255 => (0x190 + symbol - 144, 9),
            256..=279 => (symbol - 256, 7),
            _ => (0xc0 + symbol - 280, 8),
        };
        self.put(code.reverse_bits() >> (32 - count), count);
    }

    /// The previous byte, 3 to 258 times.
    fn repeat(&mut self, length: u32) {
        let over = length - 3;
        let (symbol, extra) = match length {
            258 => (285, 0),
            3..=10 => (257 + over, 0),
            _ => {
                let extra = over.ilog2() - 2;
                (257 + 4 * extra + (over >> extra), extra)
            }
        };
        self.symbol(symbol);
        self.put(over & ((1 << extra) - 1), extra);
        // The distance of one byte.
        self.put(0, 5);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::page;
    use super::super::{BLACK, BOTTOM, COLORS, LEFT};
    use super::*;

    #[test]
    fn checksums_are_those_of_the_standards() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(adler32(b"Wikipedia"), 0x11e6_0398);
    }

    /// Compared with zlib.
    #[test]
    fn runs_become_matches() {
        assert_eq!(deflate(b""), [0x03, 0x00]);
        assert_eq!(deflate(b"a"), [0x4b, 0x04, 0x00]);
        assert_eq!(deflate(&[b'a'; 10]), [0x4b, 0x84, 0x03, 0x00]);
    }

    #[test]
    fn bars_and_words_are_where_they_belong() {
        let dots = Dots::of(&page());
        let at = |x: f64, y: f64| {
            let place = (y * SCALE) as usize * COLUMNS + (x * SCALE) as usize;
            dots.colors[usize::from(dots.dots[place])]
        };
        assert_eq!(at(1.0, 1.0), WHITE);
        assert_eq!(at(LEFT + 5.0, BOTTOM - 5.0), COLORS[0]);
        assert_eq!(at(LEFT + 5.0, BOTTOM + 0.5), BLACK);
        // The first bar is half as high as the highest.
        assert_eq!(at(LEFT + 5.0, 190.0), COLORS[0]);
        assert_eq!(at(LEFT + 5.0, 180.0), WHITE);
        // The first letter of the title, a T.
        assert_eq!(at(LEFT + 3.5, 19.0), BLACK);
        assert_eq!(at(LEFT + 1.0, 19.0), WHITE);
    }

    #[test]
    fn every_letter_can_be_written() {
        for words in page().words {
            for letter in words.text.chars().filter(|letter| *letter != ' ') {
                assert!(font::dots(letter).count() > 0, "{letter}");
            }
        }
        assert!(('0'..='9').all(|digit| font::dots(digit).count() > 0));
        assert!(
            "read when settled"
                .chars()
                .all(|c| c == ' ' || font::dots(c).count() > 0)
        );
    }
}
