//! Our decoder beside `nmea-parser`, and our cells beside the `geohash` crate: neither shares a line of code with ours.
//!
//! A difference on types 1, 2, 3 or 18, or in any cell, fails a test, bar the exceptions that are named: [`Exception`] for
//! messages, [`Axis::wraps`] for cells. Each exception is checked to be just what its name says, and to be met, so that
//! none outlives its reason.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::float_arithmetic, missing_docs)]

#[path = "support/encode.rs"]
mod encode;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use ais_replay::cell::{Cell, Precision};
use ais_replay::decode::message::{self, Message};
use ais_replay::decode::scan::{self, Context, Vdm, Visitor};
use ais_replay::decode::tag::Tag;
use ais_replay::decode::tally::{Ignore, Reject};
use ais_replay::report::{MAX_LAT, MAX_LON, Position, UNITS_PER_DEGREE};
use encode::Bits;
use geohash::Coord;
use nmea_parser::{NmeaParser, ParseError, ParsedMessage};

/// The types that both decode to the same fields.
const TYPES: [u8; 4] = [1, 2, 3, 18];

/// How many messages of random bits are compared.
const RANDOM_MESSAGES: u32 = 20_000;

/// A generator of the same numbers each time (xorshift, Marsaglia 2003).
struct Random(u64);

impl Random {
    fn new() -> Self {
        Self(88_172_645_463_325_252)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Any number of a field of `width` ≤ 32 bits.
    fn field(&mut self, width: u32) -> u32 {
        (self.next() >> (64 - width)) as u32
    }

    /// `-max` to `max`.
    fn within(&mut self, max: i32) -> i32 {
        (self.below(2 * max.unsigned_abs() as u64 + 1)) as i32 - max
    }
}

// ---- messages -----------------------------------------------------------------------------------------------------------

/// Where nmea-parser 0.11 and this crate read a message differently, on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Exception {
    /// It reads bits that were not received as zeros, and does not look at the number of fill bits. We reject the message.
    CutOff,
    /// It takes exactly 181° E and exactly 91° N for "not available", each on its own, and passes on anything else that lies
    /// off the globe. We have no position where either is not available or off the globe.
    NoPosition,
    /// It refuses a talker of other characters than letters and digits. Real receivers sign `=I`, and we read them.
    Talker,
}

/// A single-part VDM sentence.
#[derive(Debug)]
struct Sentence {
    text: String,
    payload: Vec<u8>,
    fill: u8,
}

impl Sentence {
    /// From `VDM` to before the checksum.
    fn body_behind_talker(&self) -> &str {
        self.text.get(3..self.text.len() - 3).unwrap()
    }

    /// Up to the end of the UTC second, the last field that is compared (ITU-R M.1371-5, tables 48 and 70).
    fn bits_needed(&self) -> usize {
        if self.payload[0] == b'B' { 139 } else { 143 }
    }
}

/// The fields that are compared, as nmea-parser gives them: places and speed in our units, the second as sent.
#[derive(Debug)]
struct Theirs {
    mmsi: u32,
    lon: Option<i32>,
    lat: Option<i32>,
    sog: Option<u16>,
    second: u8,
}

impl Theirs {
    /// None where the sentence is refused for its talker.
    fn read(sentence: &str) -> Option<Self> {
        let report = match NmeaParser::new().parse_sentence(sentence) {
            Ok(ParsedMessage::VesselDynamicData(report)) => report,
            Err(ParseError::InvalidSentence(why)) if why.starts_with("Invalid characters in sentence type") => {
                return None;
            }
            other => panic!("nmea-parser reads {sentence} as {other:?}"),
        };
        let units = |degrees: f64| (degrees * f64::from(UNITS_PER_DEGREE)).round() as i32;
        Some(Self {
            mmsi: report.mmsi,
            lon: report.longitude.map(units),
            lat: report.latitude.map(units),
            sog: report.sog_knots.map(|knots| (knots * 10.0).round() as u16),
            second: report.timestamp_seconds,
        })
    }

    /// What our report must hold if theirs is right: 60 to 63 name no second.
    fn comparable(&self) -> (u32, Option<Position>, Option<u16>, Option<u8>) {
        let position = self.lon.zip(self.lat).and_then(|(lon, lat)| Position::new(lon, lat));
        (self.mmsi, position, self.sog, (self.second < 60).then_some(self.second))
    }
}

/// Decodes a sentence both ways. Panics where they differ, and tells which exception it took for them to agree.
fn compare(sentence: &Sentence) -> Option<Exception> {
    let Some(theirs) = Theirs::read(&sentence.text) else {
        let text = encode::sentence('!', &format!("AI{}", sentence.body_behind_talker()));
        let signed_ai = Sentence { text, payload: sentence.payload.clone(), fill: sentence.fill };
        return compare(&signed_ai).or(Some(Exception::Talker));
    };
    let received = 6 * sentence.payload.len() - usize::from(sentence.fill);
    match message::decode(&sentence.payload, sentence.fill, true) {
        Message::Report { report, .. } => {
            assert!(received >= sentence.bits_needed(), "{}", sentence.text);
            let ours = (report.mmsi, report.position, report.sog, report.utc_second);
            assert_eq!(ours, theirs.comparable(), "{}: nmea-parser has {theirs:?}", sentence.text);
            report.position.is_none().then_some(Exception::NoPosition)
        }
        Message::CutOff(_) => {
            assert!(received < sentence.bits_needed(), "{}", sentence.text);
            assert_filled_up_is_theirs(sentence, &theirs);
            Some(Exception::CutOff)
        }
        other => panic!("we read {} as {other:?}", sentence.text),
    }
}

/// With the zeros that nmea-parser makes up, ours must be the same: so that is all there is to the difference.
fn assert_filled_up_is_theirs(sentence: &Sentence, theirs: &Theirs) {
    let mut filled_up = sentence.payload.clone();
    filled_up.resize(28, b'0');
    let Message::Report { report, .. } = message::decode(&filled_up, 0, true) else { panic!("{}", sentence.text) };
    let ours = (report.mmsi, report.position, report.sog, report.utc_second);
    assert_eq!(ours, theirs.comparable(), "{} filled up: nmea-parser has {theirs:?}", sentence.text);
}

/// Compares sentences, and tells how many took which exception.
fn compare_all<'a>(sentences: impl IntoIterator<Item = &'a Sentence>) -> BTreeMap<Option<Exception>, usize> {
    let mut met = BTreeMap::new();
    for sentence in sentences {
        *met.entry(compare(sentence)).or_default() += 1;
    }
    met
}

/// Collects the single-part VDM sentences of the types compared.
#[derive(Default)]
struct Collected(Vec<Sentence>);

impl Visitor for Collected {
    fn vdm(&mut self, _: u64, context: &Context<'_>, vdm: &Vdm<'_>) {
        // The first character is the type: '1' to '3', and 'B' for 18.
        let message_type = vdm.payload.first().map_or(0, |character| character - b'0');
        if vdm.own_ship || vdm.total > 1 || !TYPES.contains(&message_type) {
            return;
        }
        let start = context.raw.iter().position(|byte| *byte == b'!').unwrap();
        let text = std::str::from_utf8(&context.raw[start..]).expect("nmea-parser takes text alone").to_owned();
        self.0.push(Sentence { text, payload: vdm.payload.to_vec(), fill: vdm.fill });
    }

    fn other_sentence(&mut self, _: u64, _: &Context<'_>, _: &[u8], _: bool) {}
    fn reject(&mut self, _: u64, _: Reject) {}
    fn bare_line(&mut self, _: u64, _: Ignore) {}
    fn tag_line(&mut self, _: u64, _: Tag<'_>, _: &[u8]) {}
}

fn sentences_of(log: &[u8]) -> Vec<Sentence> {
    let mut collected = Collected::default();
    scan::scan(log, &mut 1, 1, &mut collected);
    collected.0
}

/// The files of a folder, in order.
fn files(folder: PathBuf) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

#[test]
fn every_report_of_the_samples_reads_alike() {
    let logs = files(support::root().join("samples"));
    let logs = logs.iter().filter(|path| path.extension().is_some_and(|extension| extension == "nmea"));
    let sentences: Vec<Sentence> = logs.flat_map(|path| sentences_of(&fs::read(path).unwrap())).collect();
    let met = compare_all(&sentences);
    assert!(sentences.len() > 10_000, "{met:?}");
}

#[test]
fn every_report_of_the_real_logs_reads_alike() {
    let Some(data) = support::shared("data") else { return };
    let sentences: Vec<Sentence> = files(data).iter().flat_map(|path| sentences_of(&fs::read(path).unwrap())).collect();
    let met = compare_all(&sentences);
    assert!(sentences.len() > 40_000, "{met:?}");
    // No receiver gave a cut-off message of these types a right checksum: random messages have to show that one.
    let met: Vec<_> = met.into_keys().flatten().collect();
    assert_eq!(met, [Exception::NoPosition, Exception::Talker]);
}

/// A message of `length` bits, all random but its type.
fn random_bits(random: &mut Random, length: u32) -> Bits {
    let message_type = TYPES[random.below(4) as usize];
    let mut bits = Bits::new().unsigned(message_type, 6);
    while (bits.len() as u32) < length {
        let width = (length - bits.len() as u32).min(32);
        bits = bits.unsigned(random.field(width), width);
    }
    bits
}

fn sentence(bits: &Bits) -> Sentence {
    let (payload, fill) = encode::armour(bits);
    let text = encode::sentence('!', &format!("AIVDM,1,1,,A,{payload},{fill}"));
    Sentence { text, payload: payload.into_bytes(), fill }
}

#[test]
fn random_messages_read_alike() {
    let mut random = Random::new();
    let sentences: Vec<_> = (0..RANDOM_MESSAGES).map(|_| sentence(&random_bits(&mut random, 168))).collect();
    let met = compare_all(&sentences);
    // Random bits name a place on the globe two times in three.
    assert!(met[&None] > 10_000 && met[&Some(Exception::NoPosition)] > 5_000, "{met:?}");
}

#[test]
fn random_messages_of_every_length_read_alike() {
    let mut random = Random::new();
    let sentences: Vec<_> = (6..=260)
        .flat_map(|length| std::iter::repeat_n(length, 20))
        .map(|length| sentence(&random_bits(&mut random, length)))
        .collect();
    let met = compare_all(&sentences);
    assert!(met[&Some(Exception::CutOff)] > 2_500 && met[&None] > 1_500, "{met:?}");
}

#[test]
fn values_at_the_ends_of_their_fields_read_alike() {
    let ends = |max: i32, not_available: i32, width: u32| {
        let most = (1 << (width - 1)) - 1;
        let mut ends = vec![-most - 1, most, 0];
        ends.extend([-max, -1, 1, max, not_available].iter().flat_map(|end| [end - 1, *end, end + 1]));
        ends
    };
    let lons = ends(MAX_LON, encode::LON_NOT_AVAILABLE, 28);
    let lats = ends(MAX_LAT, encode::LAT_NOT_AVAILABLE, 27);
    let mut sentences = Vec::new();
    for (lon, lat) in lons.iter().flat_map(|lon| lats.iter().map(move |lat| (*lon, *lat))) {
        let position = encode::Position { lon, lat, mmsi: (1 << 30) - 1, ..encode::Position::default() };
        sentences.extend(TYPES.map(|kind| sentence(&encode::position_report(kind, &position))));
    }
    for (sog, second) in (0..=1023).flat_map(|sog| [(sog, 0), (sog, (sog % 64) as u8)]) {
        let position = encode::Position { sog, second, lon: 0, lat: 0, ..encode::Position::default() };
        sentences.extend(TYPES.map(|kind| sentence(&encode::position_report(kind, &position))));
    }
    compare_all(&sentences);
}

// ---- cells --------------------------------------------------------------------------------------------------------------

/// Longitude or latitude.
#[derive(Clone, Copy, Debug)]
enum Axis {
    Lon,
    Lat,
}

impl Axis {
    /// The exception for cells: the upper end of an axis, latitude +90° or longitude +180°. The `geohash` crate's arithmetic
    /// wraps there to the opposite end, so that the north pole falls into the cells of the south pole, and +180° into those
    /// of -180° (the same meridian, at least). Here the upper end belongs to the last cell.
    fn wraps(self, position: Position) -> bool {
        match self {
            Self::Lon => position.lon() == MAX_LON,
            Self::Lat => position.lat() == MAX_LAT,
        }
    }
}

fn degrees(units: i32) -> f64 {
    f64::from(units) / f64::from(UNITS_PER_DEGREE)
}

fn precisions() -> impl Iterator<Item = Precision> {
    (1..=12).filter_map(Precision::new)
}

fn encoded(lon: i32, lat: i32, precision: Precision) -> String {
    geohash::encode(Coord { x: degrees(lon), y: degrees(lat) }, usize::from(precision.length())).unwrap()
}

/// Panics where the cell of a position is not the one of the `geohash` crate, or is not around it.
fn check_cell(position: Position, precision: Precision) {
    let (lon, lat) = (position.lon(), position.lat());
    let cell = Cell::of(position, precision);
    let text = cell.to_string();
    assert_eq!(text.parse(), Ok(cell), "{position:?}");
    assert_eq!((cell.precision(), text.len()), (precision, usize::from(precision.length())));

    let bounds = geohash::decode_bbox(&text).unwrap();
    let inside = |value: i32, least: f64, end: f64, last: bool| {
        let value = degrees(value);
        least <= value && if last { value == end } else { value < end }
    };
    let (lon_wraps, lat_wraps) = (Axis::Lon.wraps(position), Axis::Lat.wraps(position));
    assert!(inside(lon, bounds.min().x, bounds.max().x, lon_wraps), "{position:?} is outside {text}, {bounds:?}");
    assert!(inside(lat, bounds.min().y, bounds.max().y, lat_wraps), "{position:?} is outside {text}, {bounds:?}");

    let theirs = encoded(lon, lat, precision);
    if lon_wraps || lat_wraps {
        let wrapped_lon = if lon_wraps { -MAX_LON } else { lon };
        let wrapped_lat = if lat_wraps { -MAX_LAT } else { lat };
        assert_eq!(theirs, encoded(wrapped_lon, wrapped_lat, precision), "geohash no longer wraps at {position:?}");
        assert_ne!(text, theirs, "{position:?}");
    } else {
        assert_eq!(text, theirs, "{position:?}");
    }
}

fn random_position(random: &mut Random) -> Position {
    Position::new(random.within(MAX_LON), random.within(MAX_LAT)).unwrap()
}

#[test]
fn random_positions_have_the_same_cells() {
    let mut random = Random::new();
    for _ in 0..20_000 {
        let position = random_position(&mut random);
        precisions().for_each(|precision| check_cell(position, precision));
    }
}

/// The places of an axis next to an edge of a cell, which may lie between two of them: from the unit below to the one above.
fn around(edge: f64, max: i32) -> impl Iterator<Item = i32> {
    let units = edge * f64::from(UNITS_PER_DEGREE);
    let (below, above) = (units.floor() as i32, units.ceil() as i32);
    (below - 1..=above + 1).filter(move |place| (-max..=max).contains(place))
}

#[test]
fn positions_around_the_edges_of_cells_have_the_same_cells() {
    let mut random = Random::new();
    for precision in precisions() {
        for _ in 0..200 {
            let text = Cell::of(random_position(&mut random), precision).to_string();
            let bounds = geohash::decode_bbox(&text).unwrap();
            let lons: BTreeSet<_> =
                [bounds.min().x, bounds.max().x].into_iter().flat_map(|x| around(x, MAX_LON)).collect();
            let lats: BTreeSet<_> =
                [bounds.min().y, bounds.max().y].into_iter().flat_map(|y| around(y, MAX_LAT)).collect();
            for (lon, lat) in lons.iter().flat_map(|lon| lats.iter().map(move |lat| (*lon, *lat))) {
                check_cell(Position::new(lon, lat).unwrap(), precision);
            }
        }
    }
}

#[test]
fn edges_that_a_position_can_lie_on_have_the_same_cells() {
    // 216,000,000 units go round the globe, 2^9 · 421,875 of them; along a meridian it is half. Deeper edges lie between units.
    let edges = |max: i32| (0..=2 * max / 421_875).map(move |edge| edge * 421_875 - max);
    for lon in edges(MAX_LON) {
        for lat in edges(MAX_LAT).step_by(5) {
            check_cell(Position::new(lon, lat).unwrap(), Precision::new(12).unwrap());
        }
        let lats = (-1..=1).filter_map(|step| Position::new(lon + step, lon / 2 + step));
        lats.for_each(|position| precisions().for_each(|precision| check_cell(position, precision)));
    }
}

#[test]
fn edges_of_the_world_have_the_same_cells_but_where_geohash_wraps() {
    let places = |max: i32| [-max, 1 - max, -1, 0, 1, max - 1, max];
    for (lon, lat) in places(MAX_LON).iter().flat_map(|lon| places(MAX_LAT).map(|lat| (*lon, lat))) {
        precisions().for_each(|precision| check_cell(Position::new(lon, lat).unwrap(), precision));
    }
}
