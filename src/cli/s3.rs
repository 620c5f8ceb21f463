//! `ais-replay s3`: objects, and all objects below a prefix.

use super::Status;
use super::args::S3Args;
use super::console::Console;
use super::replay::{self, Extent, Identity, Material};
use super::settings::{self, Resolved};
use crate::engine::clock::Lateness;
use crate::source::s3;
use crate::summary::FromEnvironment;

/// Runs the command.
///
/// # Errors
///
/// Where an object or an output fails, or flags contradict each other.
pub fn run(args: &S3Args, from_environment: Vec<FromEnvironment>, console: Console) -> anyhow::Result<Status> {
    let Resolved { plan, notes } = settings::resolve(&args.run.replay, Lateness::Unbounded, settings::now())?;
    notes.iter().for_each(|note| console.note(note));
    let found = s3::find(&args.urls, &args.bucket.options(&args.run.aws, console))?;
    let warnings =
        found.repeated.iter().map(|name| format!("{name} is given more than once: it is read once")).collect();
    let material = Material {
        extent: Extent::of(&found.inputs),
        inputs: found.inputs,
        identity: Identity::OfEach,
        unrepeatable: None,
        warnings,
    };
    replay::replay(material, plan, &args.run, from_environment, console)
}
