//! `ais-replay file`: files, directories and standard input.

use super::Status;
use super::args::FileArgs;
use super::console::Console;
use super::replay::{self, Extent, Identity, Material};
use super::settings::{self, Resolved};
use crate::engine::clock::Lateness;
use crate::source::file;
use crate::summary::FromEnvironment;

/// Runs the command.
///
/// # Errors
///
/// Where an input or an output fails, or flags contradict each other.
pub fn run(args: &FileArgs, from_environment: Vec<FromEnvironment>, console: Console) -> anyhow::Result<Status> {
    let found = file::find(&args.paths)?;
    let Resolved { plan, notes } = settings::resolve(&args.run.replay, Lateness::Unbounded, settings::now())?;
    notes.iter().for_each(|note| console.note(note));
    let repeated =
        found.repeated.iter().map(|path| format!("{} is given more than once: it is read once", path.display()));
    let passed_over = found.passed_over.iter().map(|path| format!("{} is no file: it was passed over", path.display()));
    let unfinished = found.unfinished.iter().map(|path| {
        format!("{} is an output that a run is writing or was killed at: it was passed over", path.display())
    });
    let warnings = repeated.chain(passed_over).chain(unfinished).collect();
    let unrepeatable = found.inputs.iter().any(|input| input.stored_bytes().is_none()).then(|| {
        "standard input or a pipe cannot be read again: name the run with --run-id, so that the table knows it when it comes again"
            .to_owned()
    });
    let material = Material {
        extent: Extent::of(&found.inputs),
        inputs: found.inputs,
        identity: Identity::OfEach,
        unrepeatable,
        warnings,
    };
    replay::replay(material, plan, &args.run, from_environment, console)
}
