//! A vessel's position report as plain values: what the decoder gives and the engine counts.
//!
//! Every number keeps the resolution of the radio message (ITU-R M.1371-5, annex 8), so nothing here is a float and
//! two decoders that agree, agree to the bit.

/// Units of [`Position`] in one degree: the class A and B reports carry 1/10,000 minute.
pub const UNITS_PER_DEGREE: i32 = 600_000;

/// Largest legal longitude, 180° in 1/10,000 minute.
pub const MAX_LON: i32 = 180 * UNITS_PER_DEGREE;

/// Largest legal latitude, 90° in 1/10,000 minute.
pub const MAX_LAT: i32 = 90 * UNITS_PER_DEGREE;

/// A point on the globe in 1/10,000 minute, east and north positive.
///
/// The constructor is the only way in, so a `Position` is always inside ±180° and ±90°.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    lon: i32,
    lat: i32,
}

impl Position {
    /// The position, or `None` for "not available" (181° east, 91° north) and for anything else off the globe.
    #[inline]
    #[must_use]
    pub fn new(lon: i32, lat: i32) -> Option<Self> {
        let on_globe = (-MAX_LON..=MAX_LON).contains(&lon) && (-MAX_LAT..=MAX_LAT).contains(&lat);
        on_globe.then_some(Self { lon, lat })
    }

    /// Longitude in 1/10,000 minute, −108,000,000 to 108,000,000.
    #[inline]
    #[must_use]
    pub fn lon(self) -> i32 {
        self.lon
    }

    /// Latitude in 1/10,000 minute, −54,000,000 to 54,000,000.
    #[inline]
    #[must_use]
    pub fn lat(self) -> i32 {
        self.lat
    }
}

/// The types of position report (ITU-R M.1371-5, table 46).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum MessageType {
    /// Class A, scheduled.
    ScheduledClassA = 1,
    /// Class A, assigned schedule.
    AssignedClassA = 2,
    /// Class A, answer to an interrogation.
    InterrogatedClassA = 3,
    /// Search-and-rescue aircraft; whole knots.
    SarAircraft = 9,
    /// Class B.
    ClassB = 18,
    /// Class B, extended; usually in two parts.
    ExtendedClassB = 19,
    /// Long range, for satellites; 1/10 minute and whole knots.
    LongRange = 27,
}

impl MessageType {
    /// All of them, by number.
    pub const ALL: [Self; 7] = [
        Self::ScheduledClassA,
        Self::AssignedClassA,
        Self::InterrogatedClassA,
        Self::SarAircraft,
        Self::ClassB,
        Self::ExtendedClassB,
        Self::LongRange,
    ];

    /// The type with this number, if it is a position report.
    #[inline]
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::ScheduledClassA,
            2 => Self::AssignedClassA,
            3 => Self::InterrogatedClassA,
            9 => Self::SarAircraft,
            18 => Self::ClassB,
            19 => Self::ExtendedClassB,
            27 => Self::LongRange,
            _ => return None,
        })
    }

    /// Its number in the message, 1 to 27.
    #[inline]
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }
}

/// The message types that a run counts: a set of [`MessageType`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageTypes(u32);

impl MessageTypes {
    /// Types 1, 2, 3, 18 and 19, as the live pipeline counts them.
    pub const LIVE_PIPELINE: Self = Self(1 << 1 | 1 << 2 | 1 << 3 | 1 << 18 | 1 << 19);

    /// Whether the set holds this type.
    #[inline]
    #[must_use]
    pub fn contains(self, kind: MessageType) -> bool {
        self.0 & (1 << kind.number()) != 0
    }
}

impl FromIterator<MessageType> for MessageTypes {
    fn from_iter<I: IntoIterator<Item = MessageType>>(kinds: I) -> Self {
        Self(kinds.into_iter().fold(0, |set, kind| set | 1 << kind.number()))
    }
}

impl std::fmt::Display for MessageTypes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut separator = "";
        for kind in MessageType::ALL.into_iter().filter(|kind| self.contains(*kind)) {
            write!(f, "{separator}{}", kind.number())?;
            separator = ",";
        }
        Ok(())
    }
}

/// What one position report says, before it has an event time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The sender's Maritime Mobile Service Identity, 30 bits as sent.
    pub mmsi: u32,
    /// Which kind of report.
    pub kind: MessageType,
    /// Where, or `None` where the message says "not available" or names no place on the globe.
    pub position: Option<Position>,
    /// Speed over ground in tenths of a knot, 0 to 1022 (10,220 for type 9); `None` where it is not available.
    pub sog: Option<u16>,
    /// UTC second of the fix, 0 to 59; `None` for 60–63 ("none") and for type 27, which has no such field.
    pub utc_second: Option<u8>,
}
