//! The command line as it is written; what it means for a run is worked out in [`super::settings`].

use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, Parser, Subcommand, ValueEnum};

use super::console::Console;
use crate::aws::{AwsOptions, Watcher};
use crate::cell::Cell;
use crate::engine::clock::Lateness;
use crate::filter::BoundingBox;
use crate::memory::MemorySize;
use crate::reconcile::AggregateFile;
use crate::report::MessageType;
use crate::sink::Target;
use crate::sink::rows::Form;
#[cfg(feature = "aws")]
use crate::source::kinesis::ReadShare;
#[cfg(feature = "aws")]
use crate::source::s3::{S3Options, S3Url};
use crate::store::WriteMode;
use crate::store::write::TableName;
use crate::time::{Span, TimeArg};
use crate::verify::{CellPattern, Reference, TableRef};
use crate::{decode::event_time, decode::line_time::Zone};

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Replays raw AIS (NMEA 0183) through an event-time window engine: how many reports came per geohash cell and window, and
/// how fast the ships were.
#[derive(Debug, Parser)]
#[command(name = "ais-replay", version, styles = STYLES, max_term_width = 100)]
#[command(
    after_help = "Exit status: 0 complete; 1 failed, or nothing could be used, or --strict and something was rejected or late; \
2 wrong usage; 3 verify found a difference; 130 interrupted."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    /// What to tell.
    #[command(flatten)]
    pub console: ConsoleArgs,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Count the reports of files, directories or standard input, per cell and window
    File(FileArgs),
    /// Count the reports of objects in S3, per cell and window
    #[cfg(feature = "aws")]
    S3(S3Args),
    /// Count the reports of a Kinesis stream, from a point in time on
    #[cfg(feature = "aws")]
    Kinesis(KinesisArgs),
    /// Add late reports to the windows that they missed
    Reconcile(ReconcileArgs),
    /// Print count and average SOG per window of a cell, or compare two results
    Verify(VerifyArgs),
    /// List the runs that have written to a table
    Runs(RunsArgs),
}

/// Flags of every command.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = "Messages")]
pub struct ConsoleArgs {
    /// Tell only errors: no progress, no summary
    #[arg(short, long, global = true, env = "AIS_REPLAY_QUIET", value_parser = BoolishValueParser::new())]
    pub quiet: bool,

    /// Tell more: a line per input
    #[arg(short, long, global = true, conflicts_with = "quiet", env = "AIS_REPLAY_VERBOSE", value_parser = BoolishValueParser::new())]
    pub verbose: bool,

    /// Colour messages
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", env = "AIS_REPLAY_COLOR")]
    pub color: Color,
}

/// When messages are coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// `ais-replay file`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ais-replay file harbour.nmea
  ais-replay file logs/ --since 2026-05-01T06:00:00Z --until 2026-05-01T12:00:00Z --to csv:morning.csv
  zcat feed.gz | ais-replay file - --lateness 120s --late late.ndjson --format csv
  ais-replay file plotter.log --time-zone Europe/Oslo --cell u4 --format json")]
pub struct FileArgs {
    /// Files, directories (all files below them), or - for standard input; gzip, zstd, bzip2, xz and Lambda events of a Kinesis
    /// stream are found by content
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,

    /// The replay.
    #[command(flatten)]
    pub run: RunArgs,
}

/// `ais-replay s3`.
#[cfg(feature = "aws")]
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ais-replay s3 s3://my-bucket/ais/2026-05-01.nmea.gz
  ais-replay s3 s3://my-bucket/ais/2026/05/ --since 2026-05-01T06:00:00Z --until 2026-05-01T12:00:00Z --to csv:morning.csv
  ais-replay s3 s3://my-bucket/ais/ --only conflicts.ndjson --write replace --to dynamodb:ais_window_agg
  ais-replay s3 s3://open-data/ais/ --no-sign-request --region eu-west-1
  ais-replay s3 s3://ais/logs/ --endpoint-url http://localhost:9000")]
pub struct S3Args {
    /// Objects (s3://BUCKET/KEY), or all objects whose keys begin with a prefix that ends in / (s3://BUCKET/PREFIX/, or
    /// s3://BUCKET for all of it); what they hold is found by content, as for files
    #[arg(required = true, value_name = "URL")]
    pub urls: Vec<S3Url>,

    /// How the bucket is asked.
    #[command(flatten)]
    pub bucket: BucketArgs,

    /// The replay.
    #[command(flatten)]
    pub run: RunArgs,
}

/// How buckets are asked.
#[cfg(feature = "aws")]
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "S3")]
pub struct BucketArgs {
    /// Read a public bucket, without credentials
    #[arg(long)]
    pub no_sign_request: bool,

    /// Pay for what is read from a bucket whose requesters pay
    #[arg(long)]
    pub request_payer: bool,

    /// Region of the bucket, where a table is in another one [default: that of --region]
    #[arg(long, value_name = "REGION")]
    pub bucket_region: Option<String>,
}

#[cfg(feature = "aws")]
impl BucketArgs {
    /// The same for what opens a source.
    #[must_use]
    pub fn options(&self, aws: &AwsArgs, console: Console) -> S3Options {
        let region = self.bucket_region.clone().or_else(|| aws.region.clone());
        S3Options {
            aws: AwsOptions { region, ..aws.options(console) },
            unsigned: self.no_sign_request,
            requester_pays: self.request_payer,
        }
    }
}

/// `ais-replay kinesis`.
#[cfg(feature = "aws")]
#[derive(Debug, Args)]
#[command(
    after_help = "Reading begins ten minutes before --since and ends when a shard's reports are --lateness past --until, at \
the shard's end, or at the tip of the stream. Only windows that lie wholly between --since and --until are counted.

Examples:
  ais-replay kinesis ais --since 2h
  ais-replay kinesis ais --since 2026-05-01T06:00:00Z --until 2026-05-01T07:00:00Z --late late.ndjson --to dynamodb:ais_window_agg
  ais-replay kinesis --failed-batch dead-letter.json
  ais-replay kinesis --failed-batch dead-letters/ --repair --to dynamodb:ais_window_agg"
)]
pub struct KinesisArgs {
    /// Stream to read: its name or its ARN [default with --failed-batch: the stream of the documents]
    #[arg(value_name = "STREAM", required_unless_present = "failed_batch")]
    pub stream: Option<String>,

    /// Take this share of what a shard can give, which is 5 calls and 2 MiB a second: live consumers read the same shards
    #[arg(long, value_name = "SHARE", default_value = "1", env = "AIS_REPLAY_READ_SHARE", help_heading = "Stream")]
    pub read_share: ReadShare,

    /// Read as this registered consumer (enhanced fan-out), its name or its ARN: that takes nothing from other consumers
    #[arg(long, value_name = "NAME", env = "AIS_REPLAY_CONSUMER", help_heading = "Stream")]
    pub consumer: Option<String>,

    /// Read just the batches that these failure-destination documents of a Lambda event source mapping name, or that those
    /// in a folder name; repeatable
    #[arg(long, value_name = "FILE", help_heading = "Stream")]
    pub failed_batch: Vec<PathBuf>,

    /// Count every window that the failed batches touch anew from the stream, and replace it in the table of --to
    #[arg(long, requires = "failed_batch", help_heading = "Stream")]
    pub repair: bool,

    /// The replay.
    #[command(flatten)]
    pub run: RunArgs,
}

/// What every command that replays takes, whatever it reads.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// Windows, times and filters.
    #[command(flatten)]
    pub replay: ReplayArgs,

    /// What comes out.
    #[command(flatten)]
    pub output: OutputArgs,

    /// How tables are written.
    #[command(flatten)]
    pub table: TableArgs,

    /// How AWS is reached.
    #[command(flatten)]
    pub aws: AwsArgs,
}

/// How rows are written into a table that may hold something.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Tables")]
pub struct TableArgs {
    /// What to do with rows [default: insert for a replay, add for reconcile]
    #[arg(long, value_name = "MODE")]
    pub write: Option<WriteMode>,

    /// Write although the table's run records say that an input is in it already
    #[arg(long)]
    pub again: bool,

    /// List the rows that were left alone in this file, in the form that --only reads
    #[arg(long, value_name = "PATH")]
    pub conflicts: Option<PathBuf>,

    /// Make the table where there is none, billed on demand
    #[arg(long)]
    pub create_table: bool,

    /// Write at most this many rows a second to DynamoDB
    #[arg(long, value_name = "N", env = "AIS_REPLAY_WRITE_RATE", value_parser = clap::value_parser!(u32).range(1..))]
    pub write_rate: Option<u32>,
}

/// How AWS is reached. What is not given comes from the standard configuration and environment of AWS.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "AWS")]
pub struct AwsArgs {
    /// Profile of the shared configuration
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,

    /// Region
    #[arg(long, value_name = "REGION")]
    pub region: Option<String>,

    /// Another endpoint than AWS's own
    #[arg(long, value_name = "URL", value_parser = parse_endpoint)]
    pub endpoint_url: Option<String>,
}

impl AwsArgs {
    /// The same for what opens a table or a source.
    #[must_use]
    pub fn options(&self, console: Console) -> AwsOptions {
        AwsOptions {
            profile: self.profile.clone(),
            region: self.region.clone(),
            endpoint_url: self.endpoint_url.clone(),
            watcher: Watcher::new(move |sentence| console.waiting(sentence)),
        }
    }
}

/// `ais-replay runs`.
#[derive(Debug, Args)]
pub struct RunsArgs {
    /// The table [default: dynamodb:$AGG_TABLE]
    #[arg(long = "in", value_name = "TABLE", value_parser = parse_table)]
    pub table: Option<TableName>,

    /// Print JSON, one object a line
    #[arg(long)]
    pub json: bool,

    /// How AWS is reached.
    #[command(flatten)]
    pub aws: AwsArgs,
}

fn parse_endpoint(text: &str) -> Result<String, String> {
    let host = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    match host {
        Some(host) if !host.is_empty() && !text.contains(char::is_whitespace) => Ok(text.to_owned()),
        _ => Err(format!("'{text}' is no endpoint: http://HOST:PORT or https://HOST")),
    }
}

fn parse_table(text: &str) -> Result<TableName, String> {
    TableName::parse(text).ok_or_else(|| format!("'{text}' is no table: sqlite:PATH or dynamodb:TABLE"))
}

/// What a replay's result depends on.
#[derive(Clone, Debug, Args)]
pub struct ReplayArgs {
    /// Length of the windows, such as 90, 90s, 15m, 2h or 1d
    #[arg(long, value_name = "SPAN", default_value = "60s", env = "WINDOW_SECONDS", help_heading = "Windows")]
    pub window: Span,

    /// Distance between window starts; without it, windows follow each other without overlap
    #[arg(long, value_name = "SPAN", env = "AIS_REPLAY_SLIDE", help_heading = "Windows")]
    pub slide: Option<Span>,

    /// How long windows wait for reports that come out of order, by the reports' own time; or 'unbounded' [default: 120s for
    /// a stream, unbounded for what is complete]
    #[arg(long, value_name = "SPAN", env = "ALLOWED_LATENESS_SECONDS", help_heading = "Windows")]
    pub lateness: Option<Lateness>,

    /// Length of the cells' geohash, 1 to 12
    #[arg(long, value_name = "N", default_value = "6", env = "GEOHASH_PRECISION", help_heading = "Windows",
          value_parser = clap::value_parser!(u8).range(1..=12))]
    pub precision: u8,

    /// Only windows that start at or after this: RFC 3339, @epoch seconds, or an age such as 2h
    #[arg(long, value_name = "TIME", env = "AIS_REPLAY_SINCE", help_heading = "Selection")]
    pub since: Option<TimeArg>,

    /// Only windows that end at or before this
    #[arg(long, value_name = "TIME", env = "AIS_REPLAY_UNTIL", help_heading = "Selection")]
    pub until: Option<TimeArg>,

    /// Message types to count: any of 1, 2, 3, 9, 18, 19, 27
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,2,3,18,19", env = "AIS_REPLAY_TYPES",
          value_parser = parse_type, help_heading = "Selection")]
    pub types: Vec<MessageType>,

    /// Only reports in this box of decimal degrees, edges included; west may lie beyond east, over the 180th meridian
    #[arg(
        long,
        value_name = "W,S,E,N",
        allow_hyphen_values = true,
        env = "AIS_REPLAY_BBOX",
        help_heading = "Selection"
    )]
    pub bbox: Option<BoundingBox>,

    /// Only cells that begin with this; repeatable
    #[arg(long, value_name = "PREFIX", value_delimiter = ',', env = "AIS_REPLAY_CELL", help_heading = "Selection")]
    pub cell: Vec<Cell>,

    /// Only the cells and windows named in a late file
    #[arg(long, value_name = "LATE", env = "AIS_REPLAY_ONLY", help_heading = "Selection")]
    pub only: Option<PathBuf>,

    /// How event time is made of the times that are known
    #[arg(
        long,
        value_name = "HOW",
        default_value = "received",
        env = "AIS_REPLAY_EVENT_TIME",
        help_heading = "Event time"
    )]
    pub event_time: EventTimeArg,

    /// Zone of local times in the log: a name such as Europe/Oslo, or a distance from UTC such as +02:00
    #[arg(
        long,
        value_name = "ZONE",
        allow_hyphen_values = true,
        env = "AIS_REPLAY_TIME_ZONE",
        help_heading = "Event time"
    )]
    pub time_zone: Option<Zone>,

    /// What gives the time to lines that have none
    #[arg(long, value_name = "CLOCK", env = "AIS_REPLAY_CLOCK", help_heading = "Event time")]
    pub clock: Option<ClockArg>,

    /// For logs without any time: when the log starts; each report's own UTC second leads on from there
    #[arg(long, value_name = "TIME", env = "AIS_REPLAY_START", help_heading = "Event time")]
    pub start: Option<TimeArg>,

    /// What to do with TAG blocks whose checksum is wrong or missing
    #[arg(
        long,
        value_name = "WHAT",
        default_value = "ignore",
        env = "AIS_REPLAY_TAG_CHECKSUM",
        help_heading = "Reading"
    )]
    pub tag_checksum: TagChecksumArg,

    /// Count the receiver's own ship (VDO sentences) too
    #[arg(long, env = "AIS_REPLAY_OWN_SHIP", value_parser = BoolishValueParser::new(), help_heading = "Reading")]
    pub own_ship: bool,

    /// How many threads read, unpack and decode; the result is the same [default: one per core]
    #[arg(long, value_name = "N", env = "AIS_REPLAY_THREADS", help_heading = "Reading",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,

    /// How much windows, cells and vessels may take in memory, such as 512M or 2G; the rest goes to unnamed files in the
    /// folder for temporary ones (TMPDIR), and the result is the same [default: a quarter of the machine's]
    #[arg(long, value_name = "SIZE", env = "AIS_REPLAY_MEMORY", help_heading = "Reading")]
    pub memory: Option<MemorySize>,
}

fn parse_type(text: &str) -> Result<MessageType, String> {
    text.trim()
        .parse()
        .ok()
        .and_then(MessageType::from_number)
        .ok_or_else(|| format!("'{text}' is no type of position report: 1, 2, 3, 9, 18, 19 or 27"))
}

/// How event time is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EventTimeArg {
    /// The TAG block's time, else the line's, else the record's arrival, else --clock, else --start
    Received,
    /// That, moved to the nearest instant with the report's own UTC second
    UtcSecond,
    /// The record's arrival alone, as the live pipeline does
    Arrival,
}

impl From<EventTimeArg> for event_time::EventTimeMode {
    fn from(how: EventTimeArg) -> Self {
        match how {
            EventTimeArg::Received => Self::Received,
            EventTimeArg::UtcSecond => Self::UtcSecond,
            EventTimeArg::Arrival => Self::Arrival,
        }
    }
}

/// What gives the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ClockArg {
    /// The last base station report (type 4)
    BaseStation,
    /// The last $..RMC or $..ZDA sentence
    Sentences,
    /// The last time seen in the same file
    Previous,
}

impl From<ClockArg> for event_time::Clock {
    fn from(clock: ClockArg) -> Self {
        match clock {
            ClockArg::BaseStation => Self::BaseStation,
            ClockArg::Sentences => Self::Sentences,
            ClockArg::Previous => Self::Previous,
        }
    }
}

/// What to do with a TAG block of a bad checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TagChecksumArg {
    /// Count it and use the block
    Ignore,
    /// Reject the sentence
    Require,
}

/// What comes out of a replay.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Where the rows go: stdout, csv:PATH, sqlite:PATH, dynamodb:TABLE, or dynamodb for the table that AGG_TABLE names;
    /// repeatable [default: stdout]
    #[arg(long, value_name = "TARGET")]
    pub to: Vec<Target>,

    /// Keep reports that are late for a window in this file (NDJSON), for 'reconcile'
    #[arg(long, value_name = "PATH")]
    pub late: Option<PathBuf>,

    /// Form of the rows on standard output [default: table on a terminal, else csv]
    #[arg(long, value_name = "FORM", env = "AIS_REPLAY_FORMAT")]
    pub format: Option<Form>,

    /// Write window starts as RFC 3339 instead of epoch seconds
    #[arg(long, env = "AIS_REPLAY_UTC", value_parser = BoolishValueParser::new())]
    pub utc: bool,

    /// Exit with 1 if any sentence was rejected or any report late
    #[arg(long, env = "AIS_REPLAY_STRICT", value_parser = BoolishValueParser::new())]
    pub strict: bool,

    /// Read everything, write no row and no late file, and say what would be written
    #[arg(long)]
    pub dry_run: bool,

    /// Write the whole summary to this file as JSON
    #[arg(long, value_name = "PATH")]
    pub summary: Option<PathBuf>,

    /// Id of the run in tables and its late file [default: derived from the inputs' content and the options]
    #[arg(long, value_name = "ID", env = "AIS_REPLAY_RUN_ID")]
    pub run_id: Option<String>,
}

/// `ais-replay reconcile`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ais-replay reconcile late.ndjson
  ais-replay reconcile late.ndjson --into csv:windows.csv
  ais-replay reconcile late.ndjson --to dynamodb:ais_window_agg")]
pub struct ReconcileArgs {
    /// Late files, as --late writes them, or NDJSON of cell, window_start, count and sog_sum
    #[arg(required = true, value_name = "LATE")]
    pub late: Vec<PathBuf>,

    /// Add the increments to the rows of this result and rewrite it; without it, print them
    #[arg(long, value_name = "csv:PATH", conflicts_with = "to")]
    pub into: Option<AggregateFile>,

    /// Add the increments to a table: sqlite:PATH, dynamodb:TABLE, or dynamodb for the table that AGG_TABLE names
    #[arg(long, value_name = "TABLE", value_parser = parse_table)]
    pub to: Option<TableName>,

    /// Id of the run in the table [default: derived from the late files' content]
    #[arg(long, value_name = "ID", env = "AIS_REPLAY_RUN_ID")]
    pub run_id: Option<String>,

    /// Form of the increments on standard output [default: table on a terminal, else csv]
    #[arg(long, value_name = "FORM", env = "AIS_REPLAY_FORMAT")]
    pub format: Option<Form>,

    /// Print window starts as RFC 3339 instead of epoch seconds
    #[arg(long, env = "AIS_REPLAY_UTC", value_parser = BoolishValueParser::new())]
    pub utc: bool,

    /// Read everything, write nothing, and say what would be written
    #[arg(long)]
    pub dry_run: bool,

    /// How tables are written.
    #[command(flatten)]
    pub table: TableArgs,

    /// How AWS is reached.
    #[command(flatten)]
    pub aws: AwsArgs,
}

/// `ais-replay verify`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ais-replay verify u4pruy --in csv:windows.csv
  ais-replay verify --all --in csv:windows.csv --against csv:other.csv
  ais-replay verify u4pruy --in csv:windows.csv --against file:harbour.nmea")]
pub struct VerifyArgs {
    /// Cells to print; 'u4pr*' stands for every cell that begins so
    #[arg(value_name = "CELL", required_unless_present = "all")]
    pub cells: Vec<CellPattern>,

    /// Every cell
    #[arg(long, conflicts_with = "cells")]
    pub all: bool,

    /// The result to read: csv:PATH, sqlite:PATH or dynamodb:TABLE [default: dynamodb:$AGG_TABLE]
    #[arg(long = "in", value_name = "RESULT", env = "AIS_REPLAY_IN")]
    pub table: Option<TableRef>,

    /// Compare with this: another result, or the sentences themselves in file:PATH, s3://BUCKET/KEY or kinesis:STREAM,
    /// replayed with the flags below
    #[arg(long, value_name = "RESULT|SOURCE")]
    pub against: Option<Reference>,

    /// Form of the output [default: lines for people]
    #[arg(long, value_name = "FORM", env = "AIS_REPLAY_VERIFY_FORMAT")]
    pub format: Option<VerifyForm>,

    /// Windows, times and filters.
    #[command(flatten)]
    pub replay: ReplayArgs,

    /// How the bucket of --against is asked.
    #[cfg(feature = "aws")]
    #[command(flatten)]
    pub bucket: BucketArgs,

    /// How AWS is reached.
    #[command(flatten)]
    pub aws: AwsArgs,
}

/// Form of what `verify` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum VerifyForm {
    /// An array of objects
    Json,
    /// Comma-separated values
    Csv,
}
