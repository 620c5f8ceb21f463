//! The six-bit armour of a payload (IEC 61162-1, ITU-R M.1371-5 annex 8): checked and undone eight characters at a time.
//!
//! A character stands for six bits: `0`–`W` for 0–39, `` ` ``–`w` for 40–63. Words of eight characters are handled as one
//! integer, which is what makes decoding cheaper than finding the line.

/// The lowest bit of each byte of a word.
const ONES: u64 = 0x0101_0101_0101_0101;

/// The highest bit of each byte of a word.
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// How many characters [`Bits`] holds.
pub const HEAD_CHARACTERS: usize = 24;

#[inline]
fn word(bytes: &[u8; 8]) -> u64 {
    // First character in the highest byte, as its bits are the first of the message.
    u64::from_be_bytes(*bytes)
}

/// Non-zero where a character of the word is outside the armour's alphabet.
#[inline]
fn illegal(word: u64) -> u64 {
    // Below 0x80 no sum carries into the neighbour; at or above, the byte's own high bit tells.
    let low = word & !HIGHS;
    let at_least = |bound: u8| low + ONES * u64::from(0x80 - bound);
    let hole = at_least(b'W' + 1) & !at_least(b'`');
    (word | !at_least(b'0') | hole | at_least(b'w' + 1)) & HIGHS
}

/// The 48 bits of eight legal characters, right-aligned.
#[inline(always)]
fn unarmour(word: u64) -> u64 {
    // Characters from '`' on have bits 6 and 5 set and lie eight further up than their value.
    let upper = word & word << 1 & (ONES << 6);
    let six = word - ONES * u64::from(b'0') - (upper >> 3);
    let twelve = (six & 0x3f00_3f00_3f00_3f00) >> 2 | six & 0x003f_003f_003f_003f;
    let twenty_four = (twelve & 0x0fff_0000_0fff_0000) >> 4 | twelve & 0x0000_0fff_0000_0fff;
    (twenty_four & 0x00ff_ffff_0000_0000) >> 8 | twenty_four & 0x0000_0000_00ff_ffff
}

/// Whether every character is of the armour's alphabet.
#[inline]
#[must_use]
pub fn is_legal(payload: &[u8]) -> bool {
    let mut found = 0;
    let (words, _) = payload.as_chunks::<8>();
    for bytes in words {
        found |= illegal(word(bytes));
    }
    // The rest, once more with what came before it where there is enough.
    if let Some(last) = payload.last_chunk::<8>() {
        found |= illegal(word(last));
    } else {
        for byte in payload {
            found |= illegal(word(&[b'0', b'0', b'0', b'0', b'0', b'0', b'0', *byte]));
        }
    }
    found == 0
}

/// How many legal characters stand at the start of a text, before one that is not, and their checksum. `None` where the text
/// ends too early to tell.
#[inline(always)]
#[must_use]
pub fn legal_run(text: &[u8]) -> Option<(usize, u8)> {
    let (mut length, mut folded) = (0, 0);
    loop {
        let word = word(text.get(length..)?.first_chunk()?);
        let found = illegal(word);
        if found != 0 {
            // The first character is in the highest byte: less than eight of them are legal.
            let legal = found.leading_zeros() / 8;
            folded ^= word >> 8 >> (56 - 8 * legal);
            return Some((length + legal as usize, fold(folded)));
        }
        folded ^= word;
        length += 8;
    }
}

/// The six bits of one legal character.
#[inline]
#[must_use]
pub fn six_bits(character: u8) -> u8 {
    let value = character.wrapping_sub(b'0');
    if value > 40 { value.wrapping_sub(8) } else { value }
}

/// The first 144 bits of a message, as three words of 48.
#[derive(Clone, Copy, Debug)]
pub struct Bits([u64; 3]);

impl Bits {
    /// The head of a legal payload. What lies beyond a shorter payload reads as zeros: the caller compares with the number
    /// of bits that were received before it believes any of them.
    #[inline(always)]
    #[must_use]
    pub fn of(payload: &[u8]) -> Self {
        if let Some(head) = payload.first_chunk::<HEAD_CHARACTERS>() {
            return Self::of_head(head);
        }
        let mut head = [b'0'; HEAD_CHARACTERS];
        head[..payload.len()].copy_from_slice(payload);
        Self::of_head(&head)
    }

    #[inline(always)]
    fn of_head(head: &[u8; HEAD_CHARACTERS]) -> Self {
        let (words, _) = head.as_chunks::<8>();
        Self([unarmour(word(&words[0])), unarmour(word(&words[1])), unarmour(word(&words[2]))])
    }

    /// The unsigned field of `length` bits (1 to 30) that starts at bit `start`; it must end within the first 144.
    #[inline]
    #[must_use]
    pub fn unsigned(&self, start: usize, length: usize) -> u32 {
        debug_assert!(length <= 30 && start + length <= 144);
        let (first, offset) = (start / 48, start % 48);
        // Two neighbouring words side by side hold any field.
        let next = if first < 2 { self.0[first + 1] } else { 0 };
        let pair = u128::from(self.0[first]) << 48 | u128::from(next);
        (pair >> (96 - offset - length)) as u32 & ((1 << length) - 1)
    }

    /// The two's complement field of `length` bits that starts at bit `start`.
    #[inline]
    #[must_use]
    pub fn signed(&self, start: usize, length: usize) -> i32 {
        let unused = 32 - length as u32;
        (self.unsigned(start, length) << unused).cast_signed() >> unused
    }
}

/// Exclusive or of all bytes: the checksum of NMEA 0183.
#[inline]
#[must_use]
pub fn checksum(bytes: &[u8]) -> u8 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut folded = words.iter().fold(0, |sum, bytes| sum ^ u64::from_le_bytes(*bytes));
    match bytes.last_chunk() {
        // The last eight bytes, less those that were in the words: the lower ones.
        Some(last) if !rest.is_empty() => folded ^= u64::from_le_bytes(*last) >> (64 - 8 * rest.len()),
        Some(_) => {}
        None => folded = rest.iter().fold(0, |sum, byte| sum ^ u64::from(*byte)),
    }
    fold(folded)
}

/// Exclusive or of the eight bytes of a word.
#[inline(always)]
pub(super) fn fold(word: u64) -> u8 {
    let mut folded = word ^ word >> 32;
    folded ^= folded >> 16;
    folded ^= folded >> 8;
    folded as u8
}

/// The upper-case hexadecimal digits of every checksum.
const HEX: [[u8; 2]; 256] = {
    let digits = b"0123456789ABCDEF";
    let mut table = [[0; 2]; 256];
    let mut value = 0;
    while value < table.len() {
        table[value] = [digits[value >> 4], digits[value & 15]];
        value += 1;
    }
    table
};

/// The hexadecimal digits of a checksum as most write it, in capitals.
#[inline(always)]
#[must_use]
pub fn upper_hex(checksum: u8) -> [u8; 2] {
    HEX[usize::from(checksum)]
}

/// The value of two hexadecimal digits of either case.
#[inline]
#[must_use]
pub fn hex(digits: [u8; 2]) -> Option<u8> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    Some(digit(digits[0])? << 4 | digit(digits[1])?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The armour's value of one character, as the standard's table gives it.
    fn value(character: u8) -> Option<u64> {
        match character {
            b'0'..=b'W' => Some(u64::from(character) - 48),
            b'`'..=b'w' => Some(u64::from(character) - 56),
            _ => None,
        }
    }

    #[test]
    fn every_byte_in_every_place_is_judged_as_the_table_says() {
        for length in 1..=20 {
            for place in 0..length {
                for byte in 0..=255 {
                    let mut payload = vec![b'w'; length];
                    payload[place] = byte;
                    assert_eq!(is_legal(&payload), value(byte).is_some(), "{byte} at {place} of {length}");
                }
            }
        }
        assert!(is_legal(b""));
    }

    #[test]
    fn every_character_in_every_place_gives_its_bits() {
        for place in 0..HEAD_CHARACTERS {
            for byte in (0..=255).filter(|byte| value(*byte).is_some()) {
                assert_eq!(Some(u64::from(six_bits(byte))), value(byte));
                let mut payload = [b'0'; HEAD_CHARACTERS];
                payload[place] = byte;
                let bits = Bits::of(&payload);
                for other in 0..HEAD_CHARACTERS {
                    let expected = if other == place { value(byte).unwrap() } else { 0 };
                    assert_eq!(u64::from(bits.unsigned(6 * other, 6)), expected);
                }
            }
        }
    }

    #[test]
    fn fields_across_words_and_signs() {
        let bits = Bits::of(b"wwwwwwwwwwwwwwwwwwwwwwww");
        assert_eq!(bits.signed(61, 28), -1);
        assert_eq!(bits.unsigned(40, 30), (1 << 30) - 1);
        assert_eq!(Bits::of(b"1").unsigned(0, 6), 1);
        assert_eq!(Bits::of(b"").unsigned(0, 30), 0);
    }

    #[test]
    fn checksum_is_the_exclusive_or_of_the_bytes() {
        for length in 0..40 {
            let bytes: Vec<u8> = (0..length).map(|n: u8| n.wrapping_mul(37)).collect();
            assert_eq!(checksum(&bytes), bytes.iter().fold(0, |sum, byte| sum ^ byte));
        }
        assert_eq!(hex(*b"5c"), Some(0x5c));
        assert_eq!(hex(*b"G0"), None);
    }
}
