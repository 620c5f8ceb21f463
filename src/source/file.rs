//! Files and directories of files.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::{Input, SourceError};
use crate::sink::atomic;

/// A file to read.
#[derive(Clone, Debug)]
pub struct FileInput {
    /// Its path, as the command line gives it or found below a directory that it gives.
    pub path: PathBuf,
    /// Size as stored; `None` for pipes and devices, which can be read only once.
    pub bytes: Option<u64>,
    /// Whether the command line names the file itself.
    pub named: bool,
}

impl FileInput {
    /// Opens it.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn open(&self) -> Result<File, SourceError> {
        if self.path.is_dir() {
            return Err(open_error(&self.path, io::Error::other("it is a directory")));
        }
        File::open(&self.path).map_err(|error| open_error(&self.path, error))
    }
}

fn open_error(path: &Path, error: io::Error) -> SourceError {
    SourceError::Open { name: path.display().to_string(), error }
}

/// What the command line's paths came to.
#[derive(Debug, Default)]
pub struct Found {
    /// The inputs, ordered by name so that no result depends on the order of arguments.
    pub inputs: Vec<Input>,
    /// Paths that lead to a file which another path leads to as well; it is read once.
    pub repeated: Vec<PathBuf>,
    /// Entries of directories that are no files.
    pub passed_over: Vec<PathBuf>,
    /// Files in directories that a run is writing, or was killed at.
    pub unfinished: Vec<PathBuf>,
}

/// Finds the inputs that paths stand for: files, `-` for standard input, and all files below a directory.
///
/// # Errors
///
/// Where a path leads nowhere, or a directory holds no file.
pub fn find(paths: &[PathBuf]) -> Result<Found, SourceError> {
    let mut found = Found::default();
    // By the file itself, so that no detour makes it count twice.
    let mut files: BTreeMap<PathBuf, FileInput> = BTreeMap::new();
    let mut stdin = false;
    let mut paths: Vec<&PathBuf> = paths.iter().collect();
    paths.sort();
    for path in paths {
        if path.as_os_str() == "-" {
            stdin = true;
            continue;
        }
        let metadata = fs::metadata(path).map_err(|error| open_error(path, error))?;
        let mut add = |file: FileInput| -> Result<(), SourceError> {
            // A pipe has no path to itself.
            let itself = match file.bytes {
                Some(_) => fs::canonicalize(&file.path).map_err(|error| open_error(&file.path, error))?,
                None => file.path.clone(),
            };
            match files.get_mut(&itself) {
                Some(known) => {
                    known.named |= file.named;
                    found.repeated.push(file.path);
                }
                None => {
                    files.insert(itself, file);
                }
            }
            Ok(())
        };
        if metadata.is_dir() {
            let mut below = Vec::new();
            walk(path, &mut below, &mut found.passed_over, &mut found.unfinished)?;
            if below.is_empty() {
                return Err(SourceError::EmptyDirectory { path: path.clone() });
            }
            below.into_iter().try_for_each(add)?;
        } else {
            let bytes = metadata.is_file().then_some(metadata.len());
            add(FileInput { path: path.clone(), bytes, named: true })?;
        }
    }
    found.inputs = files.into_values().map(Input::File).collect();
    found.inputs.sort_by_key(Input::name);
    if stdin {
        found.inputs.insert(0, Input::Stdin);
    }
    Ok(found)
}

/// Collects the files below a directory. Links to directories are not followed, so there is no way round in a circle.
fn walk(
    directory: &Path,
    files: &mut Vec<FileInput>,
    passed_over: &mut Vec<PathBuf>,
    unfinished: &mut Vec<PathBuf>,
) -> Result<(), SourceError> {
    let read = |error| open_error(directory, error);
    let mut entries: Vec<PathBuf> = fs::read_dir(directory)
        .map_err(read)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .map_err(read)?;
    entries.sort();
    for path in entries {
        let link = fs::symlink_metadata(&path).map_err(|error| open_error(&path, error))?;
        if link.is_dir() {
            walk(&path, files, passed_over, unfinished)?;
            continue;
        }
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_file() && atomic::is_temporary(&path) => unfinished.push(path),
            Ok(metadata) if metadata.is_file() => {
                files.push(FileInput { path, bytes: Some(metadata.len()), named: false });
            }
            Ok(_) => passed_over.push(path),
            Err(_) if link.is_symlink() => passed_over.push(path),
            Err(error) => return Err(open_error(&path, error)),
        }
    }
    Ok(())
}
