//! TAG blocks (NMEA 0183 4.10, chapter 7): when and by whom a sentence was received, and which sentences belong together.

use crate::decode::armour;
use crate::time::Timestamp;

/// The fields of a TAG block that we use. Unknown ones are passed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag<'a> {
    /// `c:`, the UNIX time at which the sentence was received.
    pub time: Option<Timestamp>,
    /// `s:`, the source.
    pub source: Option<&'a [u8]>,
    /// Id of the group that the sentence is part of: `g:1-2-73874` or `1G2:0125`.
    pub group: Option<&'a [u8]>,
    /// How many of the blocks had a wrong checksum or none.
    pub bad_checksums: u32,
}

impl<'a> Tag<'a> {
    /// Reads the text between the backslashes of one block.
    #[inline]
    #[must_use]
    pub fn parse(content: &'a [u8]) -> Self {
        let (fields, checksum_holds) = match content {
            [fields @ .., b'*', high, low] => (fields, armour::hex([*high, *low]) == Some(armour::checksum(fields))),
            // A checksum of another length than two digits is a wrong one, and no part of the last value.
            _ => (content.iter().position(|byte| *byte == b'*').map_or(content, |star| &content[..star]), false),
        };
        let mut tag = Self { bad_checksums: u32::from(!checksum_holds), ..Self::default() };
        let mut start = 0;
        for_each_comma(fields, |comma| {
            tag.read_field(&fields[start..comma]);
            start = comma + 1;
        });
        tag.read_field(&fields[start..]);
        tag
    }

    #[inline]
    fn read_field(&mut self, field: &'a [u8]) {
        match field {
            [b'c', b':', value @ ..] => self.time = self.time.or_else(|| Timestamp::from_unix_text(value)),
            [b's', b':', value @ ..] if !value.is_empty() => self.source = Some(value),
            // Part, number of parts, id.
            [b'g', b':', value @ ..] => self.group = value.splitn(3, |byte| *byte == b'-').nth(2),
            [part, b'G', parts, b':', id @ ..] if part.is_ascii_digit() && parts.is_ascii_digit() => {
                self.group = Some(id);
            }
            _ => {}
        }
    }

    /// This block followed by another one: what stands nearer to the sentence counts.
    #[must_use]
    pub fn followed_by(self, next: Self) -> Self {
        Self {
            time: next.time.or(self.time),
            source: next.source.or(self.source),
            group: next.group.or(self.group),
            bad_checksums: self.bad_checksums + next.bad_checksums,
        }
    }
}

/// Calls `found` with the place of every comma, eight bytes at a time: a block is too short for a search that has to be
/// set up.
#[inline]
fn for_each_comma(text: &[u8], mut found: impl FnMut(usize)) {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let (words, rest) = text.as_chunks::<8>();
    for (number, bytes) in words.iter().enumerate() {
        let differs = u64::from_le_bytes(*bytes) ^ (ONES * u64::from(b','));
        // The high bit of each byte that is zero; a borrow can only mark bytes behind such a one, which are asked again.
        let mut zeros = differs.wrapping_sub(ONES) & !differs & ONES << 7;
        while zeros != 0 {
            let place = 8 * number + zeros.trailing_zeros() as usize / 8;
            if text[place] == b',' {
                found(place);
            }
            zeros &= zeros - 1;
        }
    }
    for (place, byte) in rest.iter().enumerate() {
        if *byte == b',' {
            found(8 * words.len() + place);
        }
    }
}

/// How many bytes at the start of a text are certain to be of one value, and their checksum: none of them ends a TAG block or
/// its line, or parts its fields. `None` where the text ends too early to tell.
#[inline(always)]
fn value_run(text: &[u8]) -> Option<(usize, u8)> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    let (mut length, mut folded) = (0, 0);
    loop {
        // The first byte in the highest.
        let word = u64::from_be_bytes(*text.get(length..)?.first_chunk()?);
        // Line ends, `!`, `$` and the comma are at most a comma. No sum carries into the neighbour, as in `armour`.
        let low = word & !HIGHS;
        let above_comma = low + ONES * (0x80 - (b',' as u64 + 1));
        let no_backslash = (low ^ (ONES * b'\\' as u64)) + ONES * 0x7f;
        let stops = (word | !above_comma | !no_backslash) & HIGHS;
        if stops != 0 {
            let before = stops.leading_zeros() / 8;
            folded ^= word >> 8 >> (56 - 8 * before);
            return Some((length + before as usize, armour::fold(folded)));
        }
        folded ^= word;
        length += 8;
    }
}

/// Checksum of what stands around the two values of a usual block.
const AROUND: u8 = b's' ^ b':' ^ b',' ^ b'c' ^ b':';

/// Reads a TAG block at the start of a text if it is one as most feeds write it, `\s:source,c:1777593600*7A\` with a right
/// checksum. Returns it with its length. Anything else gives `None`.
#[inline(always)]
#[must_use]
pub(super) fn usual_block(text: &[u8]) -> Option<(Tag<'_>, usize)> {
    let [b'\\', b's', b':', rest @ ..] = text else { return None };
    let (length, source_checksum) = value_run(rest)?;
    let (source, rest) = rest.split_at(length);
    let (behind, _) = rest.split_first_chunk::<17>()?;
    let [b',', b'c', b':', digits @ .., b'*', high, low, b'\\'] = behind else { return None };
    let time = Timestamp::from_ten_digits(digits)?;
    let [eight @ .., tens, ones] = digits;
    let checksum = source_checksum ^ armour::fold(u64::from_be_bytes(*eight)) ^ tens ^ ones ^ AROUND;
    let tag = Tag { time: Some(time), source: Some(source), group: None, bad_checksums: 0 };
    // Three characters before the source, seventeen behind it.
    (armour::upper_hex(checksum) == [*high, *low] && !source.is_empty()).then_some((tag, length + 20))
}

/// Finds a TAG block at the start of a text and returns its content and the length of the whole block, backslashes
/// included. A backslash that opens no block, such as one in a path, gives `None`.
#[inline]
#[must_use]
pub fn block_at_start(text: &[u8]) -> Option<(&[u8], usize)> {
    let [b'\\', rest @ ..] = text else { return None };
    // A block has a key of a few letters or digits, a colon, and ends before any sentence begins.
    let has_key = match rest {
        [key, b':', ..] => key.is_ascii_alphanumeric(),
        _ => {
            let colon = rest.iter().take(5).position(|byte| *byte == b':')?;
            colon > 0 && rest[..colon].iter().all(u8::is_ascii_alphanumeric)
        }
    };
    if !has_key {
        return None;
    }
    let end = memchr::memchr3(b'\\', b'!', b'$', rest)?;
    (rest[end] == b'\\').then_some((&rest[..end], end + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_real_blocks() {
        let tag = Tag::parse(b"s:2573310,c:1654088303*0B");
        assert_eq!(tag.time, Timestamp::from_seconds(1_654_088_303));
        assert_eq!(tag.source, Some(&b"2573310"[..]));
        assert_eq!((tag.group, tag.bad_checksums), (None, 0));

        let tag = Tag::parse(b"g:1-2-73874,n:157036,s:r003669945,c:1241544035*4A");
        assert_eq!((tag.group, tag.bad_checksums), (Some(&b"73874"[..]), 0));
        let tag = Tag::parse(b"1G2:0125,c:1354719387*0D");
        assert_eq!((tag.group, tag.bad_checksums), (Some(&b"0125"[..]), 0));
        let tag = Tag::parse(b"c:1577762601537,s:my-station,T:2019-12-30 22.23.21*5D");
        assert_eq!(tag.time.map(Timestamp::nanos), Some(1_577_762_601_537_000_000));
        let tag = Tag::parse(b"s:42809,c:1635731889,t:1635731965*6A");
        assert_eq!(tag.time, Timestamp::from_seconds(1_635_731_889));
    }

    #[test]
    fn a_block_is_used_whatever_its_checksum() {
        for content in
            [&b"s:r1,c:1700000041*00"[..], b"s:r1,c:1700000041", b"s:r1,c:1700000041*7", b"s:r1,c:1700000041*"]
        {
            let tag = Tag::parse(content);
            assert_eq!((tag.time, tag.bad_checksums), (Timestamp::from_seconds(1_700_000_041), 1));
        }
    }

    #[test]
    fn every_comma_is_found_once() {
        for length in 0..40 {
            for seed in 0..50_u32 {
                let byte = |place: u32| b",-+,\x00,c\xac"[(place * 7 + seed * place * place + seed) as usize % 8];
                let text: Vec<u8> = (0..length).map(byte).collect();
                let mut places = Vec::new();
                for_each_comma(&text, |place| places.push(place));
                let expected: Vec<usize> = (0..text.len()).filter(|place| text[*place] == b',').collect();
                assert_eq!(places, expected, "{text:?}");
            }
        }
    }

    #[test]
    fn the_nearer_of_two_blocks_counts() {
        let tag = Tag::parse(b"s:r1ACE0JVF*28").followed_by(Tag::parse(b"c:1628097600"));
        assert_eq!(tag.time, Timestamp::from_seconds(1_628_097_600));
        assert_eq!((tag.source, tag.bad_checksums), (Some(&b"r1ACE0JVF"[..]), 2));
    }

    #[test]
    fn odd_fields_are_passed_over() {
        for content in
            [&b""[..], b",,,", b"c", b"c:", b"c:x", b"c:-5", b"g:", b"g:1-2", b":", b"zz:a:b:c", b"s:", b"*", b"1G2"]
        {
            let tag = Tag::parse(content);
            assert_eq!((tag.time, tag.source, tag.group), (None, None, None), "{content:?}");
        }
        assert_eq!(Tag::parse(b"x:y:z w,s:a:b,c:1").source, Some(&b"a:b"[..]));
    }

    #[test]
    fn a_block_is_told_from_a_path() {
        assert_eq!(block_at_start(b"\\s:r1*00\\!AIVDM"), Some((&b"s:r1*00"[..], 9)));
        assert_eq!(block_at_start(b"\\1G2:0125\\"), Some((&b"1G2:0125"[..], 10)));
        for text in [&b"\\logs\\today"[..], b"\\", b"\\:x\\", b"\\s:r1!AIVDM\\", b"s:x\\", b"\\s:r1"] {
            assert_eq!(block_at_start(text), None, "{text:?}");
        }
    }
}
