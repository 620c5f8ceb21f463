//! Any bytes as a TAG block: what is found is what a plain reading of NMEA 0183 4.10 finds.

#![no_main]

use ais_replay::decode::tag::{Tag, block_at_start};
use ais_replay::time::Timestamp;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    match block_at_start(data) {
        Some((content, length)) => {
            assert_eq!((data[0], &data[1..length - 1], data[length - 1]), (b'\\', content, b'\\'));
            assert!(!content.iter().any(|byte| b"\\!$".contains(byte)) && content.contains(&b':'));
            check(content);
        }
        None => check(data),
    }
});

fn check(content: &[u8]) {
    let tag = Tag::parse(content);
    assert_eq!(tag, plainly_read(content));
    let twice = tag.followed_by(tag);
    assert_eq!((twice.time, twice.source, twice.group), (tag.time, tag.source, tag.group));
    assert_eq!(Tag::default().followed_by(tag), tag);
    assert_eq!(tag.followed_by(Tag::default()), tag);
}

fn plainly_read(content: &[u8]) -> Tag<'_> {
    // A checksum is what two characters behind a star at the end are, right or wrong.
    let star = content.len().checked_sub(3).filter(|star| content[*star] == b'*');
    let (fields, checksum_holds) = match star {
        Some(star) => {
            let sum = content[..star].iter().fold(0, |sum, byte| sum ^ byte);
            (&content[..star], hexadecimal(&content[star + 1..]) == Some(sum))
        }
        None => (content.split(|byte| *byte == b'*').next().unwrap_or_default(), false),
    };
    let mut tag = Tag { bad_checksums: u32::from(!checksum_holds), ..Tag::default() };
    for field in fields.split(|byte| *byte == b',') {
        let colon = field.iter().position(|byte| *byte == b':');
        let Some((key, value)) = colon.map(|colon| (&field[..colon], &field[colon + 1..])) else { continue };
        match key {
            // The first that is a time counts.
            b"c" if tag.time.is_none() => tag.time = Timestamp::from_unix_text(value),
            b"s" if !value.is_empty() => tag.source = Some(value),
            b"g" => {
                let hyphens: Vec<usize> = (0..value.len()).filter(|place| value[*place] == b'-').collect();
                tag.group = hyphens.get(1).map(|second| &value[second + 1..]);
            }
            [part, b'G', parts] if part.is_ascii_digit() && parts.is_ascii_digit() => tag.group = Some(value),
            _ => {}
        }
    }
    tag
}

fn hexadecimal(digits: &[u8]) -> Option<u8> {
    let text = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?;
    u8::from_str_radix(text, 16).ok()
}
