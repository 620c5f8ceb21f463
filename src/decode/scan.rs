//! Bytes to lines, lines to sentences: checksums, fields and armour, but not yet what a message means.
//!
//! Scanning keeps no state from one line to the next, so any chunk of whole lines can be scanned anywhere. Nearly every
//! line of a real feed is one VDM sentence with at most a TAG block before it; `whole_line` reads those in one pass.
//! Anything else (text before or behind, glued sentences, blanks, other sentences) goes through `parse_line`.

use crate::decode::armour;
use crate::decode::tag::{self, Tag};
use crate::decode::tally::{Ignore, Reject};

/// The longest line that is read, in bytes without its end. A longer one is rejected as a whole.
pub const MAX_LINE_BYTES: usize = 64 * 1024;

/// What stands around a sentence on its line.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The sentence with the TAG blocks before it, as written.
    pub raw: &'a [u8],
    /// The TAG blocks before it, merged.
    pub tag: Option<Tag<'a>>,
    /// Text before the TAG block or the sentence.
    pub before: &'a [u8],
    /// Text behind the checksum.
    pub behind: &'a [u8],
    /// Value of the sentence's checksum.
    pub checksum: u8,
}

/// A VDM or VDO sentence whose checksum holds and whose payload is legal armour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vdm<'a> {
    /// Whether it is a VDO sentence: the receiver's own ship.
    pub own_ship: bool,
    /// Number of sentences of the message, 1 to 9.
    pub total: u8,
    /// Which of them this is, 1 to `total`.
    pub number: u8,
    /// Sequential message id, 0 to 99 as written.
    pub sequence: Option<u8>,
    /// Radio channel as written; 0 for none.
    pub channel: u8,
    /// Armoured payload.
    pub payload: &'a [u8],
    /// Fill bits, 0 to 5.
    pub fill: u8,
}

/// Takes what a scan finds, in the order of the input. `line` is the number of the line, or of the record.
pub trait Visitor {
    /// A VDM or VDO sentence that can be read.
    fn vdm(&mut self, line: u64, context: &Context<'_>, vdm: &Vdm<'_>);
    /// Another sentence, without its first character and checksum. `intact` tells whether that checksum holds.
    fn other_sentence(&mut self, line: u64, context: &Context<'_>, body: &[u8], intact: bool);
    /// A VDM or VDO sentence, or a line, that cannot be read.
    fn reject(&mut self, line: u64, kind: Reject);
    /// A line without a sentence.
    fn bare_line(&mut self, line: u64, kind: Ignore);
    /// A line of TAG blocks alone: they belong to the next sentence. `raw` is the line as written.
    fn tag_line(&mut self, line: u64, tag: Tag<'_>, raw: &[u8]);
}

/// Scans whole lines, ended by LF, CRLF or CR; the last one may lack its end. `line` is the number of the first, and is
/// advanced by `step` for each.
pub fn scan(bytes: &[u8], line: &mut u64, step: u64, visitor: &mut impl Visitor) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let next = match usual_line(rest) {
            Some((context, vdm, next)) => {
                visitor.vdm(*line, &context, &vdm);
                next
            }
            None => {
                let (length, end) = first_line(rest);
                any_line(&rest[..length], *line, visitor);
                length + end
            }
        };
        rest = &rest[next..];
        *line += step;
    }
}

/// Length of the first line of a text, and of the end of that line: LF, CRLF, CR, or none at the end of the text.
#[inline]
pub(super) fn first_line(text: &[u8]) -> (usize, usize) {
    let length = memchr::memchr2(b'\n', b'\r', text).unwrap_or(text.len());
    let end = match &text[length..] {
        [b'\r', b'\n', ..] => 2,
        [_, ..] => 1,
        [] => 0,
    };
    (length, end)
}

/// Checksum of what is the same in every usual sentence: `VDM,1,1,,` and the commas on either side of the payload, which
/// cancel each other out.
const AROUND: u8 = b'V' ^ b'D' ^ b'M' ^ b',' ^ b'1' ^ b',' ^ b'1' ^ b',' ^ b',';

/// Reads the line at the start of a text if it is one as nearly every feed writes it: a whole message in one VDM sentence, behind
/// at most a TAG block of source and time. Also tells where the next line begins. Its parts give each other's places, so
/// nothing has to be searched for. Anything unusual gives `None`, and what [`whole_line`] reads must read alike.
#[inline(always)]
pub(super) fn usual_line(text: &[u8]) -> Option<(Context<'_>, Vdm<'_>, usize)> {
    let (tag, start) = match text {
        [b'\\', ..] => {
            let (tag, length) = tag::usual_block(text)?;
            (Some(tag), length)
        }
        _ => (None, 0),
    };
    let (header, rest) = text[start..].split_first_chunk::<14>()?;
    let [b'!', t1 @ b'A'..=b'Z', t2 @ b'A'..=b'Z', whole @ .., channel @ (b'A' | b'B'), b','] = header else {
        return None;
    };
    if whole != b"VDM,1,1,," {
        return None;
    }
    let (length, payload_checksum) = armour::legal_run(rest)?;
    let (payload, rest) = rest.split_at(length);
    let (tail, rest) = rest.split_first_chunk::<5>()?;
    let [b',', fill @ b'0'..=b'5', b'*', digits @ ..] = tail else { return None };
    let end = match rest {
        [b'\n', ..] => 1,
        [b'\r', b'\n', ..] => 2,
        [b'\r', ..] => 1,
        [] => 0,
        _ => return None,
    };
    let next = text.len() - rest.len() + end;
    let line = &text[..next - end];
    // What stands in the header besides, and the commas around the payload.
    let checksum = payload_checksum ^ t1 ^ t2 ^ channel ^ fill ^ AROUND;
    if *digits != armour::upper_hex(checksum) || line.len() > MAX_LINE_BYTES {
        return None;
    }
    let vdm =
        Vdm { own_ship: false, total: 1, number: 1, sequence: None, channel: *channel, payload, fill: fill - b'0' };
    Some((Context { raw: line, tag, before: &[], behind: &[], checksum }, vdm, next))
}

/// Reads a line that is not usual.
fn any_line(text: &[u8], line: u64, visitor: &mut impl Visitor) {
    match whole_line(text) {
        Some((context, vdm)) => visitor.vdm(line, &context, &vdm),
        None => parse_line(text, line, visitor),
    }
}

/// Reads a line that is exactly one readable VDM or VDO sentence, with at most one TAG block before it.
#[inline]
pub(super) fn whole_line(line: &[u8]) -> Option<(Context<'_>, Vdm<'_>)> {
    if line.len() > MAX_LINE_BYTES {
        return None;
    }
    let (tag, sentence) = match tag::block_at_start(line) {
        Some((content, length)) => (Some(Tag::parse(content)), &line[length..]),
        None => (None, line),
    };
    let [b'!', body @ .., b'*', high, low] = sentence else { return None };
    let sum = armour::hex([*high, *low])?;
    let vdm = plain_fields(body)?;
    if armour::checksum(body) != sum || !armour::is_legal(vdm.payload) {
        return None;
    }
    Some((Context { raw: line, tag, before: &[], behind: &[], checksum: sum }, vdm))
}

/// The fields of a sentence in its usual form: `AIVDM,1,1,,A,payload,0`. Anything unusual gives `None`, not an error.
#[inline(always)]
fn plain_fields(body: &[u8]) -> Option<Vdm<'_>> {
    let [t1, t2, b'V', b'D', formatter, b',', total, b',', number, b',', rest @ .., b',', fill] = body else {
        return None;
    };
    let own_ship = match formatter {
        b'M' => false,
        b'O' => true,
        _ => return None,
    };
    let (sequence, rest) = match rest {
        [b',', rest @ ..] => (None, rest),
        [digit, b',', rest @ ..] if digit.is_ascii_digit() => (Some(digit - b'0'), rest),
        _ => return None,
    };
    let (channel, payload) = match rest {
        [b',', rest @ ..] => (0, rest),
        [channel, b',', rest @ ..] if channel.is_ascii_alphanumeric() => (*channel, rest),
        _ => return None,
    };
    let (total, number, fill) = (total.wrapping_sub(b'0'), number.wrapping_sub(b'0'), fill.wrapping_sub(b'0'));
    let usual = is_talker(*t1) && is_talker(*t2) && fill <= 5;
    (usual && (1..=9).contains(&total) && (1..=total).contains(&number)).then_some(Vdm {
        own_ship,
        total,
        number,
        sequence,
        channel,
        payload,
        fill,
    })
}

/// Reads any line: finds its TAG blocks and sentences and reports each.
#[cold]
pub(super) fn parse_line(line: &[u8], number: u64, visitor: &mut impl Visitor) {
    if line.len() > MAX_LINE_BYTES {
        return visitor.reject(number, Reject::LineTooLong);
    }
    let text = line.trim_ascii();
    if text.is_empty() {
        return visitor.bare_line(number, Ignore::Blank);
    }
    if text.starts_with(b"#") {
        return visitor.bare_line(number, Ignore::Comment);
    }
    let mut found = Find::start(text);
    let Some(mut sentence) = found.next_sentence() else {
        return match found.tag {
            Some(tag) => visitor.tag_line(number, tag, text),
            None => visitor.bare_line(number, Ignore::Text),
        };
    };
    // Text between two sentences goes on the first one if it begins with a comma, as what loggers append does.
    loop {
        let next = found.next_sentence();
        let gap_end = next.as_ref().map_or(text.len(), |next| next.raw_start);
        let gap = &text[sentence.end..gap_end];
        let (behind, before_next) =
            if next.is_none() || gap.starts_with(b",") { (gap, &[][..]) } else { (&[][..], gap) };
        sentence.report(text, behind, number, visitor);
        match next {
            Some(mut next) => {
                next.before = before_next;
                sentence = next;
            }
            None => return,
        }
    }
}

/// Walks a line from one sentence to the next.
struct Find<'a> {
    text: &'a [u8],
    place: usize,
    /// TAG blocks since the last sentence, and where the first of them begins.
    tag: Option<Tag<'a>>,
    tag_start: usize,
}

/// A sentence's place on a line.
struct Found<'a> {
    raw_start: usize,
    start: usize,
    end: usize,
    tag: Option<Tag<'a>>,
    before: &'a [u8],
}

impl<'a> Find<'a> {
    fn start(text: &'a [u8]) -> Self {
        Self { text, place: 0, tag: None, tag_start: 0 }
    }

    fn next_sentence(&mut self) -> Option<Found<'a>> {
        let first = self.place == 0;
        while let Some(step) = memchr::memchr3(b'\\', b'!', b'$', &self.text[self.place..]) {
            let start = self.place + step;
            if step > 0 && self.tag.is_some() && !self.text[self.place..start].trim_ascii().is_empty() {
                // Text between a TAG block and what follows: the block belonged to something that is not there.
                self.tag = None;
            }
            let rest = &self.text[start..];
            if let Some((content, length)) = tag::block_at_start(rest) {
                let tag = Tag::parse(content);
                match self.tag {
                    Some(before) => self.tag = Some(before.followed_by(tag)),
                    None => (self.tag, self.tag_start) = (Some(tag), start),
                }
                self.place = start + length;
            } else if rest[0] != b'\\' && is_sentence_start(rest) {
                self.place = start + sentence_length(rest);
                let tag = self.tag.take();
                let raw_start = if tag.is_some() { self.tag_start } else { start };
                let before = if first { &self.text[..raw_start] } else { &[] };
                return Some(Found { raw_start, start, end: self.place, tag, before });
            } else {
                self.place = start + 1;
            }
        }
        None
    }
}

/// Whether a character may be one of a talker's two. Real receivers write more than letters: a fleet of them signs `=I`.
#[inline]
fn is_talker(character: u8) -> bool {
    character.is_ascii_graphic() && !matches!(character, b',' | b'*' | b'\\' | b'!' | b'$')
}

/// Whether a text that begins with `!` or `$` goes on as an address field does: any talker and `VDM` or `VDO`, else 3 to 8
/// capitals or digits, and a comma.
fn is_sentence_start(text: &[u8]) -> bool {
    if let [_, t1, t2, b'V', b'D', b'M' | b'O', b',', ..] = text {
        return is_talker(*t1) && is_talker(*t2);
    }
    let length = text[1..].iter().take_while(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit()).count();
    (3..=8).contains(&length) && text.get(1 + length) == Some(&b',')
}

/// Length of the sentence at the start of a text: to the end of its checksum, or to where another one begins.
fn sentence_length(text: &[u8]) -> usize {
    let next = memchr::memchr3(b'\\', b'!', b'$', &text[1..]).map_or(text.len(), |place| place + 1);
    match memchr::memchr(b'*', &text[..next]) {
        Some(star) => next.min(star + 3),
        None => next,
    }
}

impl Found<'_> {
    fn report(&self, text: &[u8], behind: &[u8], line: u64, visitor: &mut impl Visitor) {
        let sentence = &text[self.start + 1..self.end];
        let star = sentence.iter().position(|byte| *byte == b'*');
        let (body, sum) = match star.map(|star| sentence.split_at(star)) {
            Some((body, [b'*', high, low])) => (body, armour::hex([*high, *low])),
            Some((body, _)) => (body, None),
            None => (sentence, None),
        };
        let context = Context {
            raw: &text[self.raw_start..self.end],
            tag: self.tag,
            before: self.before,
            behind,
            checksum: sum.unwrap_or_default(),
        };
        let intact = sum == Some(armour::checksum(body));
        let is_vdm = text[self.start] == b'!' && matches!(body, [_, _, b'V', b'D', b'M' | b'O', b',', ..]);
        if !is_vdm {
            return visitor.other_sentence(line, &context, body, intact);
        }
        if sum.is_none() {
            return visitor.reject(line, Reject::ChecksumMissing);
        }
        if !intact {
            return visitor.reject(line, Reject::ChecksumBad);
        }
        match fields(body) {
            None => visitor.reject(line, Reject::Malformed),
            Some(vdm) if !armour::is_legal(vdm.payload) => visitor.reject(line, Reject::BadArmour),
            Some(vdm) => visitor.vdm(line, &context, &vdm),
        }
    }
}

/// The fields of a VDM or VDO sentence in any form that is read. `None` where it is malformed.
fn fields(body: &[u8]) -> Option<Vdm<'_>> {
    let own_ship = body[4] == b'O';
    let mut fields = body.split(|byte| *byte == b',').skip(1);
    let mut next = || fields.next();
    let (total, number, sequence, channel, payload, fill) = (next()?, next()?, next()?, next()?, next()?, next()?);
    // An eighth field is what some receivers write behind the fill bits.
    let more = fields.count();
    let digit = |field: &[u8]| match field {
        [digit] if digit.is_ascii_digit() => Some(digit - b'0'),
        _ => None,
    };
    let (total, number) = (digit(total)?, digit(number)?);
    let fill = match fill {
        [] => 0,
        field => digit(field)?,
    };
    let sequence = match sequence {
        [] => None,
        [tens, ones] if tens.is_ascii_digit() && ones.is_ascii_digit() => Some((tens - b'0') * 10 + ones - b'0'),
        field => Some(digit(field)?),
    };
    let readable = more <= 1 && fill <= 5 && total >= 1 && (1..=total).contains(&number);
    let channel = channel.first().copied().unwrap_or_default();
    readable.then_some(Vdm { own_ship, total, number, sequence, channel, payload, fill })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes down what it is told.
    #[derive(Default)]
    struct Log(Vec<String>);

    impl Visitor for Log {
        fn vdm(&mut self, line: u64, context: &Context<'_>, vdm: &Vdm<'_>) {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            self.0.push(format!(
                "{line} {}/{} {}{} tag={} before={:?} behind={:?}",
                vdm.number,
                vdm.total,
                text(&vdm.payload[..vdm.payload.len().min(4)]),
                if vdm.own_ship { " own" } else { "" },
                context.tag.is_some_and(|tag| tag.time.is_some()),
                text(context.before),
                text(context.behind),
            ));
        }
        fn other_sentence(&mut self, line: u64, _: &Context<'_>, body: &[u8], intact: bool) {
            self.0.push(format!("{line} other {} {intact}", String::from_utf8_lossy(&body[..5])));
        }
        fn reject(&mut self, line: u64, kind: Reject) {
            self.0.push(format!("{line} {}", kind.name()));
        }
        fn bare_line(&mut self, line: u64, kind: Ignore) {
            self.0.push(format!("{line} {}", kind.name()));
        }
        fn tag_line(&mut self, line: u64, tag: Tag<'_>, _: &[u8]) {
            self.0.push(format!("{line} tag alone, time {}", tag.time.is_some()));
        }
    }

    fn scanned(bytes: &[u8]) -> Vec<String> {
        let mut log = Log::default();
        scan(bytes, &mut 1, 1, &mut log);
        log.0
    }

    const PLAIN: &str = "!AIVDM,1,1,,A,13tfEWhP0j0nNE0Q12H3Q?vt0000,0*66";

    #[test]
    fn line_ends_of_all_kinds() {
        let expected = ["1 1/1 13tf tag=false before=\"\" behind=\"\"", "2 1/1 13tf tag=false before=\"\" behind=\"\""];
        for end in ["\n", "\r\n", "\r"] {
            assert_eq!(scanned(format!("{PLAIN}{end}{PLAIN}{end}").as_bytes()), expected, "{end:?}");
            assert_eq!(scanned(format!("{PLAIN}{end}{PLAIN}").as_bytes()), expected, "{end:?}");
        }
        assert_eq!(scanned(b"\n\n"), ["1 blank_line", "2 blank_line"]);
    }

    #[test]
    fn a_usual_line_is_read_as_any_whole_line_is() {
        let tagged = format!("\\s:r1,c:1700000043*{:02X}\\{PLAIN}", armour::checksum(b"s:r1,c:1700000043"));
        let mut usual = 0;
        for line in [PLAIN, &tagged] {
            // Every byte in every place, with the line end and the next line behind it, and nothing.
            for (place, end) in (0..line.len()).flat_map(|place| ["\n", "\r\n", "\r", ""].map(|end| (place, end))) {
                for byte in 0..=255 {
                    let mut text = line.as_bytes().to_vec();
                    text[place] = byte;
                    // Damage that its checksums do not show.
                    let star = text.len() - 3;
                    let start = text.iter().rposition(|byte| *byte == b'!').unwrap_or(0);
                    if start < star {
                        let sum = armour::upper_hex(armour::checksum(&text[start + 1..star]));
                        text[star + 1..].copy_from_slice(&sum);
                    }
                    text.extend_from_slice(end.as_bytes());
                    text.extend_from_slice(if end.is_empty() { b"" } else { b"!AIVDM,1,1" });
                    let Some((context, vdm, next)) = usual_line(&text) else { continue };
                    usual += 1;
                    let (length, end) = first_line(&text);
                    assert_eq!(next, length + end);
                    let (other, other_vdm) = whole_line(&text[..length]).unwrap();
                    assert_eq!(vdm, other_vdm);
                    let all = |context: &Context<'_>| format!("{context:?}");
                    assert_eq!(all(&context), all(&other));
                }
            }
        }
        assert!(usual > 5_000, "{usual}");
    }

    #[test]
    fn glued_sentences_are_two() {
        let glued = format!("{PLAIN}{PLAIN}");
        assert_eq!(scanned(glued.as_bytes()).len(), 2);
        let half = format!("!AIVDM,1,1,,A,13tfElPP0j0\\s:r1,c:1700000043*7E\\{PLAIN}");
        assert_eq!(scanned(half.as_bytes()), ["1 checksum_missing", "1 1/1 13tf tag=true before=\"\" behind=\"\""]);
    }

    #[test]
    fn text_around_a_sentence_is_kept_for_its_time() {
        let line = format!("  [2024-07-19 08:45:27.141] {PLAIN},r003669945,1700000045  ");
        assert_eq!(
            scanned(line.as_bytes()),
            ["1 1/1 13tf tag=false before=\"[2024-07-19 08:45:27.141] \" behind=\",r003669945,1700000045\""]
        );
        let two = format!("{PLAIN},1700000045 1700000046 {PLAIN}");
        assert_eq!(
            scanned(two.as_bytes()),
            [
                "1 1/1 13tf tag=false before=\"\" behind=\",1700000045 1700000046 \"",
                "1 1/1 13tf tag=false before=\"\" behind=\"\""
            ]
        );
    }

    #[test]
    fn faults_have_names() {
        for (line, kind) in [
            ("!AIVDM,1,1,,A,13tfDW0P1JJwT<0Fpn03Q?vt0000,0*7D", "checksum_bad"),
            ("!AIVDM,1,1,,A,13tfDW0P1JJwT<0Fpn03Q?vt0000,0", "checksum_missing"),
            ("!AIVDM,1,1,,A,13tfDW0P1JJwT<0Fpn03Q?vt0000,0*6", "checksum_missing"),
            ("!AIVDM,1,1,,A,13tfDW0P1JJwT<0Fpn03Q?vt0000,0*", "checksum_missing"),
            ("!AIVDM,1,1,,A,13tfDT@P1J0nNE0Q12H3Q?vt0000,9*64", "malformed"),
            ("!AIVDM,1,1,,A,13tfDT@P1J0nNE0Q12H3Q?vt0000,x*25", "malformed"),
            ("!AIVDM,1,2,,A,13tfDT@P1J0nNE0Q12H3Q?vt0000,0*6E", "malformed"),
            ("!AIVDM,1,1*57", "malformed"),
            ("!AIVDM,1,1,,A,13tfXY@P1J0nNE0Q12H3Q?vt0000,0*7C", "bad_armour"),
            ("hello", "text"),
            ("# !AIVDM", "comment"),
            ("C:\\logs\\x", "text"),
        ] {
            assert_eq!(scanned(line.as_bytes()), [format!("1 {kind}")], "{line}");
        }
        assert_eq!(scanned(&vec![b'x'; MAX_LINE_BYTES + 1]), ["1 line_too_long"]);
        assert_eq!(scanned(&vec![b'x'; MAX_LINE_BYTES]), ["1 text"]);
    }

    #[test]
    fn forms_of_real_receivers() {
        let read = |line: &str| scanned(line.as_bytes());
        assert_eq!(read("!AIVDM,1,1,1,,13aI8e?P00PGpU:NR6s00?vT2000,0,0*1C").len(), 1);
        assert!(read("!AIVDM,1,1,1,,13aI8e?P00PGpU:NR6s00?vT2000,0,0*1C")[0].starts_with("1 1/1 13aI"));
        assert!(read("!AIVDM,1,1,,A,13tfDT@P1J0nNE0Q12H3Q?vt0000,*5D")[0].starts_with("1 1/1 13tf"));
        assert!(read("!ABVDO,1,1,,B,405flfh000Htt1mVi9dQv>700p3B,0*70")[0].starts_with("1 1/1 405f own"));
        assert!(read("!=IVDM,1,1,,A,18JSmJ001D8FqSClKd51JAD20D0W,0*2E")[0].starts_with("1 1/1 18JS"));
        assert_eq!(read("$GPZDA,072914.00,31,05,2018,-03,00*4D"), ["1 other GPZDA true"]);
        assert_eq!(read("\\c:1354719388*56\\"), ["1 tag alone, time true"]);
        let two_blocks = format!("\\s:r1ACE0JVF*27\\\\c:1628097600,s:x*24\\{PLAIN}");
        assert!(read(&two_blocks)[0].contains("tag=true"));
    }
}
