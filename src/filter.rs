//! Which accepted reports are counted. Filters never decide what is late: event time is taken before them.

use crate::cell::Cell;
use crate::report::{MAX_LAT, MAX_LON, MessageType, MessageTypes, Position, UNITS_PER_DEGREE};

/// A box of the globe, edges included. West may lie east of east: the box then goes over the 180th meridian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundingBox {
    /// Edges in 1/10,000 minute, rounded inwards.
    west: i32,
    south: i32,
    east: i32,
    north: i32,
}

impl BoundingBox {
    fn holds(self, position: Position) -> bool {
        let (lon, lat) = (position.lon(), position.lat());
        let between = if self.west <= self.east {
            (self.west..=self.east).contains(&lon)
        } else {
            lon >= self.west || lon <= self.east
        };
        between && (self.south..=self.north).contains(&lat)
    }
}

/// Decimal places of a degree that are read; the message's own resolution is coarser than 10^-6.
const PLACES: u32 = 9;

/// Reads degrees as an exact integer of 10^-9 degree.
fn degrees(text: &str) -> Option<i64> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty()
        || whole.len() > 3
        || !all_digits(whole)
        || !all_digits(fraction)
        || fraction.len() > PLACES as usize
    {
        return None;
    }
    let whole: i64 = whole.parse().ok()?;
    let fraction: i64 = format!("{fraction:0<9}").parse().ok()?;
    Some(sign * (whole * 10_i64.pow(PLACES) + fraction))
}

impl std::str::FromStr for BoundingBox {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid =
            |why: &str| format!("'{text}' is no box W,S,E,N in decimal degrees such as 10.5,57.2,12,58.1: {why}");
        let edges: Vec<i64> = text
            .split(',')
            .map(|edge| degrees(edge.trim()).ok_or_else(|| invalid(&format!("'{edge}' is not a number of degrees"))))
            .collect::<Result<_, _>>()?;
        let &[west, south, east, north] = edges.as_slice() else {
            return Err(invalid("it takes four numbers"));
        };
        let scale = 10_i64.pow(PLACES);
        if [west, east].iter().any(|lon| lon.abs() > 180 * scale)
            || [south, north].iter().any(|lat| lat.abs() > 90 * scale)
        {
            return Err(invalid("an edge is off the globe"));
        }
        if south > north {
            return Err(invalid("south lies north of north"));
        }
        // Within ±MAX_LON, so it fits.
        let floor = |edge: i64| (edge * i64::from(UNITS_PER_DEGREE)).div_euclid(scale) as i32;
        let ceiling = |edge: i64| -floor(-edge);
        Ok(Self { west: ceiling(west), south: ceiling(south), east: floor(east), north: floor(north) })
    }
}

impl std::fmt::Display for BoundingBox {
    /// West, south, east and north in 1/10,000 minute, as they are compared.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{},{},{},{}", self.west, self.south, self.east, self.north)
    }
}

/// The filters of a run.
#[derive(Clone, Debug)]
pub struct Filter {
    /// Message types that are counted.
    pub types: MessageTypes,
    /// Where.
    pub bounding_box: Option<BoundingBox>,
    /// Cells that are counted, with all that lie in them; none means all.
    pub cells: Vec<Cell>,
}

impl Default for Filter {
    fn default() -> Self {
        Self { types: MessageTypes::LIVE_PIPELINE, bounding_box: None, cells: Vec::new() }
    }
}

/// How many accepted reports a filter left out, by the first one that did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filtered {
    /// By message type.
    pub types: u64,
    /// By the box.
    pub bounding_box: u64,
    /// By cell.
    pub cells: u64,
}

/// What the filters make of one report: counted, or left out by the first that does not let it pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is counted.
    Counted,
    /// It is of another message type.
    OtherType,
    /// It is outside the box.
    OutsideBox,
    /// It is in none of the cells.
    OtherCell,
}

impl Filtered {
    /// Takes note of a verdict, and tells whether it lets the report pass.
    #[inline]
    pub fn note(&mut self, verdict: Verdict) -> bool {
        match verdict {
            Verdict::Counted => return true,
            Verdict::OtherType => self.types += 1,
            Verdict::OutsideBox => self.bounding_box += 1,
            Verdict::OtherCell => self.cells += 1,
        }
        false
    }

    /// In all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.types + self.bounding_box + self.cells
    }
}

impl Filter {
    /// What the filters make of a report.
    #[inline]
    #[must_use]
    pub fn judge(&self, kind: MessageType, position: Position, cell: Cell) -> Verdict {
        if !self.types.contains(kind) {
            return Verdict::OtherType;
        }
        if let Some(bounding_box) = self.bounding_box
            && !bounding_box.holds(position)
        {
            return Verdict::OutsideBox;
        }
        if !self.cells.is_empty() && !self.cells.iter().any(|prefix| cell.starts_with(*prefix)) {
            return Verdict::OtherCell;
        }
        Verdict::Counted
    }
}

// A box is read with edges on the globe, which is what the casts above rest on.
const _: () = assert!(MAX_LON == 180 * UNITS_PER_DEGREE && MAX_LAT == 90 * UNITS_PER_DEGREE);

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(text: &str, lon: i32, lat: i32) -> bool {
        text.parse::<BoundingBox>().unwrap().holds(Position::new(lon, lat).unwrap())
    }

    #[test]
    fn edges_belong_to_the_box() {
        let text = "10.5,57.2,12,58.1";
        assert!(holds(text, 6_300_000, 34_320_000) && holds(text, 7_200_000, 34_860_000));
        assert!(!holds(text, 6_299_999, 34_320_000) && !holds(text, 7_200_001, 34_860_000));
        // Between two positions that a message can tell apart.
        assert!(!holds("0.0000001,0,1,1", 0, 0) && holds("-0.0000001,0,1,1", 0, 0));
    }

    #[test]
    fn a_box_may_go_over_the_180th_meridian() {
        let text = "170,-10,-170,10";
        assert!(holds(text, MAX_LON, 0) && holds(text, -MAX_LON, 0) && holds(text, 171 * UNITS_PER_DEGREE, 0));
        assert!(!holds(text, 0, 0));
    }

    #[test]
    fn impossible_boxes_are_refused() {
        for text in ["", "1,2,3", "1,2,3,4,5", "a,b,c,d", "181,0,0,0", "0,-91,0,0", "0,10,1,9", "1e1,0,1,1", "0,0,1,"] {
            assert!(text.parse::<BoundingBox>().is_err(), "{text}");
        }
    }
}
