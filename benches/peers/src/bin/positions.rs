//! Writes the position reports of a log as CSV, decoded beforehand for a peer that counts and does not decode.

use std::io::{self, BufWriter, Write};

use nmea_kit::ais::{AisMessage, AisParser};

fn main() -> io::Result<()> {
    let path = std::env::args_os().nth(1).ok_or_else(|| io::Error::other("usage: positions LOG"))?;
    let log = std::fs::read_to_string(path)?;
    let mut out = BufWriter::new(io::stdout().lock());
    writeln!(out, "epoch,mmsi,lon,lat,sog")?;
    let mut parser = AisParser::new();
    for line in log.lines() {
        let Ok(frame) = nmea_kit::parse_frame(line) else { continue };
        let Some(AisMessage::Position(report)) = parser.decode(&frame) else { continue };
        let epoch = frame.tag_block.into_iter().flat_map(|tags| tags.split(',')).find_map(|tag| tag.strip_prefix("c:"));
        if let (Some(epoch), Some(lon), Some(lat)) = (epoch, report.longitude, report.latitude) {
            let sog = report.sog.map(|sog| format!("{sog:.1}")).unwrap_or_default();
            writeln!(out, "{epoch},{},{lon:.8},{lat:.8},{sog}", report.mmsi)?;
        }
    }
    out.flush()
}
