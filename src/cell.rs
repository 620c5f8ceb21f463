//! Geohash cells as integers: made straight from the message's 1/10,000 minutes, ordered as their texts are.
//!
//! The `geohash` crate reads and prints cells elsewhere and is the check of this arithmetic in the tests. The two differ
//! at two edges, on purpose: latitude +90° and longitude +180° belong to the last cell here, and wrap to the opposite side
//! there.

use std::fmt;
use std::str::FromStr;

use crate::report::{MAX_LAT, MAX_LON, Position};

/// Characters of a geohash, in the order of their values, which is also their order as text.
const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";

/// Bits of the full-resolution code: twelve characters of five bits.
const CODE_BITS: u32 = 60;

/// Bits of each axis in the full-resolution code.
const AXIS_BITS: u32 = 30;

/// Length of a geohash, 1 to 12 characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Precision(u8);

impl Precision {
    /// A precision, or `None` outside 1–12.
    #[must_use]
    pub fn new(length: u8) -> Option<Self> {
        (1..=12).contains(&length).then_some(Self(length))
    }

    /// Number of characters, 1 to 12.
    #[inline]
    #[must_use]
    pub fn length(self) -> u8 {
        self.0
    }
}

/// A geohash cell of any length.
///
/// The code stands left-aligned above four bits of length, so that comparing the integers compares the texts: `u4` comes
/// before `u40`, and `u4z` before `u5`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cell(u64);

impl Cell {
    /// The cell of a position. Latitude +90° and longitude +180° belong to the last cell of their axis.
    #[inline]
    #[must_use]
    pub fn of(position: Position, precision: Precision) -> Self {
        let lon = axis_code(position.lon(), MAX_LON);
        let lat = axis_code(position.lat(), MAX_LAT);
        // Longitude has the first, highest bit.
        let code = spread(lon) << 1 | spread(lat);
        let unused = CODE_BITS - 5 * u32::from(precision.0);
        Self((code >> unused << unused) << 4 | u64::from(precision.0))
    }

    /// How long the cell's text is.
    #[inline]
    #[must_use]
    pub fn precision(self) -> Precision {
        Precision((self.0 & 15) as u8)
    }

    /// Whether this cell lies inside `prefix`, as their texts tell.
    #[inline]
    #[must_use]
    pub fn starts_with(self, prefix: Self) -> bool {
        let length = prefix.precision();
        let unused = CODE_BITS - 5 * u32::from(length.0) + 4;
        self.precision() >= length && self.0 >> unused == prefix.0 >> unused
    }

    /// Which of all cells of its precision it is, in their order: neighbours in number are neighbours at sea, for the most
    /// part.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0 >> (4 + CODE_BITS - 5 * u32::from(self.precision().0))
    }

    /// The integer behind it, for a place on disk.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The cell of an integer that [`Cell::to_bits`] gave.
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Its characters.
    #[must_use]
    pub fn text(self) -> CellText {
        let code = self.0 >> 4;
        let mut characters = [0; 12];
        let length = usize::from(self.precision().0);
        for (place, character) in characters.iter_mut().take(length).enumerate() {
            let shift = CODE_BITS - 5 * (place as u32 + 1);
            *character = ALPHABET[(code >> shift & 31) as usize];
        }
        CellText { characters, length }
    }
}

/// Place on one axis in 2^30ths of its range: ⌊(value + max) · 2^30 / (2 · max)⌋, the top of the range in the last one.
#[inline]
fn axis_code(value: i32, max: i32) -> u32 {
    let from_edge = (i64::from(value) + i64::from(max)) as u64;
    let code = (from_edge << AXIS_BITS) / (2 * max as u64);
    code.min((1 << AXIS_BITS) - 1) as u32
}

/// Moves bit n to bit 2n.
#[inline]
fn spread(bits: u32) -> u64 {
    let mut spread = u64::from(bits);
    spread = (spread | spread << 16) & 0x0000_ffff_0000_ffff;
    spread = (spread | spread << 8) & 0x00ff_00ff_00ff_00ff;
    spread = (spread | spread << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    spread = (spread | spread << 2) & 0x3333_3333_3333_3333;
    (spread | spread << 1) & 0x5555_5555_5555_5555
}

/// A cell as text, without an allocation.
#[derive(Clone, Copy, Debug)]
pub struct CellText {
    characters: [u8; 12],
    length: usize,
}

impl CellText {
    /// Its characters, and zeros behind them.
    #[inline]
    #[must_use]
    pub fn characters(&self) -> [u8; 12] {
        self.characters
    }
}

impl AsRef<[u8]> for CellText {
    fn as_ref(&self) -> &[u8] {
        &self.characters[..self.length]
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The alphabet is ASCII, so this never fails.
        f.pad(std::str::from_utf8(self.text().as_ref()).unwrap_or_default())
    }
}

impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cell({self})")
    }
}

/// A text that is no geohash.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a geohash cell: 1 to 12 characters of {}", String::from_utf8_lossy(ALPHABET))]
pub struct InvalidCell {
    text: String,
}

impl FromStr for Cell {
    type Err = InvalidCell;

    fn from_str(text: &str) -> Result<Self, InvalidCell> {
        let invalid = || InvalidCell { text: text.to_owned() };
        let length = u8::try_from(text.len()).ok().and_then(Precision::new).ok_or_else(invalid)?;
        let mut code = 0;
        for character in text.bytes() {
            let value = ALPHABET.iter().position(|known| *known == character).ok_or_else(invalid)?;
            code = code << 5 | value as u64;
        }
        let unused = CODE_BITS - 5 * u32::from(length.0);
        Ok(Self((code << unused) << 4 | u64::from(length.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(text: &str) -> Cell {
        text.parse().unwrap()
    }

    #[test]
    fn cells_order_as_their_texts_do() {
        let mut cells = ["u4pruy", "u4", "u5", "u40", "0", "zzzzzzzzzzzz", "u4z", "u4pruydqqvj8"].map(cell);
        let mut texts = cells.map(|cell| cell.to_string());
        cells.sort_unstable();
        texts.sort_unstable();
        assert_eq!(cells.map(|cell| cell.to_string()), texts);
    }

    #[test]
    fn a_prefix_holds_its_cells_and_no_others() {
        assert!(cell("u4pruy").starts_with(cell("u4p")));
        assert!(cell("u4p").starts_with(cell("u4p")));
        assert!(!cell("u4").starts_with(cell("u4p")));
        assert!(!cell("u4q").starts_with(cell("u4p")));
        assert!(cell("u4pruydqqvj8").starts_with(cell("u4pruydqqvj8")));
    }

    #[test]
    fn edges_of_the_world_belong_to_the_last_cell() {
        let at = |lon, lat| Cell::of(Position::new(lon, lat).unwrap(), Precision(5)).to_string();
        assert_eq!(at(MAX_LON, MAX_LAT), "zzzzz");
        assert_eq!(at(0, MAX_LAT), "upbpb");
        assert_eq!(at(-MAX_LON, -MAX_LAT), "00000");
        assert_eq!(at(MAX_LON, 10 * 600_000), "xczbz");
        assert_eq!(at(MAX_LON - 1, MAX_LAT - 1), "zzzzz");
    }

    #[test]
    fn numbers_count_the_cells_of_a_precision() {
        let numbers = [("0", 0), ("z", 31), ("00", 0), ("0z", 31), ("10", 32), ("000000000001", 1)];
        for (text, number) in numbers {
            assert_eq!(cell(text).number(), number, "{text}");
        }
        assert_eq!(cell("zzzzzzzzzzzz").number(), (1 << CODE_BITS) - 1);
    }

    #[test]
    fn texts_that_are_no_cells_are_refused() {
        for text in ["", "a", "U4", "u4pruyu4pruyx", "u4 ", "ü"] {
            assert!(text.parse::<Cell>().is_err(), "{text:?}");
        }
        assert_eq!(cell("u4pruy").to_string(), "u4pruy");
    }
}
