//! `ais-replay` counts AIS position reports per geohash cell and event-time window: from raw NMEA 0183 sentences to rows.
//!
//! # How a report flows
//!
//! ```text
//! source ──Chunk──▶ decode ──Accepted──▶ engine ──ClosedWindow──▶ sink
//!                     └─fate─▶ tally        └─late pair─▶ late side-output
//! ```
//!
//! 1. A [`source::Input`] is one *partition*: a file, standard input, an object, a shard of a stream. Its
//!    [`source::Reader`] undoes compression, found by content, and gives [`source::Chunk`]s of whole lines, or records with
//!    an arrival time. Threads of their own unpack ahead ([`source::blocks`]).
//! 2. [`decode::scan`] cuts a chunk into sentences. It keeps no state, so chunks can be scanned anywhere. A
//!    [`decode::Decoder`] per partition adds what needs memory: parts of longer messages, TAG blocks on a line of their own,
//!    clocks inside the log. Every sentence gets one fate in the [`decode::tally::Tally`]; a position report with a place and
//!    an event time leaves as [`decode::Accepted`].
//!    What needs no memory is decoded by workers, ahead of the decoder and side by side ([`decode::batch`]): a part of a
//!    longer message is read there, and meets the others in its turn.
//! 3. The [`engine::clock::PartitionClock`] takes note of its event time, before any filter, and keeps the partition's
//!    watermark. The watermark *before* the report decides for which windows the report is late.
//! 4. A [`filter::Filter`] chooses what is counted. The [`engine::Engine`] adds the report to the pane of its instant and
//!    tells the windows that it missed.
//! 5. The run loop ([`run`]) reads the partition that is furthest behind and closes the windows that no partition can add to
//!    any more. Workers make them into [`row::Row`]s, ordered by window and cell, and those into lines of CSV where they are
//!    wanted; they go to every [`sink::Sink`]. Late reports go to the late side-output.
//!
//! A shard is read by a task of its own, a page ahead, from the start of the run; the loop takes from the one that is furthest
//! behind, parents before children, and leaves a shard whose watermark is past the last selected window.
//!
//! The result is the sum of what the partitions give. The order of arguments, the size of chunks and the number of threads
//! change no byte of it.
//!
//! What the engine holds beyond its share of memory goes to disk as sorted runs ([`spill`]), and comes back when its windows
//! close. That changes no byte either.
//!
//! Files take their rows as windows close. A table that others add to as well ([`store`]) takes them when every input is read
//! and its run records say that the run may write: each row at most once per run, whatever is lost or repeated on the way.
//!
//! [`report`], [`cell`], [`window`], [`aggregate`] and [`row`] are plain values without I/O; the decoder and the engine build
//! on those alone. Sources never see cells, sinks never see sentences; only the run loop sees both.

pub mod aggregate;
pub mod aws;
pub mod cell;
pub mod cli;
pub mod decode;
pub mod engine;
pub mod filter;
pub mod memory;
pub mod reconcile;
pub mod report;
pub mod row;
pub mod run;
pub mod sink;
pub mod source;
pub mod spill;
pub mod store;
pub mod summary;
pub mod table;
pub mod time;
pub mod verify;
pub mod window;
