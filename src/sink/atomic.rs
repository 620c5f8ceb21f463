//! Files that appear whole or not at all: written beside their place under another name, then renamed.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use tempfile::NamedTempFile;

use super::SinkError;

/// Temporary files that exist now. An interrupt removes them, since it leaves no time for destructors.
static TEMPORARY: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Removes every temporary file of this process, for the moment before it exits.
pub fn remove_temporary_files() {
    for path in TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        // Nobody is left to tell of a failure, and a later run trips over nothing.
        let _ = fs::remove_file(path);
    }
}

/// Letters and digits that tell temporary files of one name apart.
const RANDOM_CHARS: usize = 6;

const SUFFIX: &str = ".part";

/// Whether a file is called as temporary ones are, `.NAME.XXXXXX.part`: a run is writing it, or was killed at it.
#[must_use]
pub fn is_temporary(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let Some(inner) = name.strip_prefix('.').and_then(|name| name.strip_suffix(SUFFIX)) else { return false };
    inner.rsplit_once('.').is_some_and(|(name, random)| {
        !name.is_empty() && random.len() == RANDOM_CHARS && random.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

/// A file on its way to its place.
#[derive(Debug)]
pub struct AtomicFile {
    /// As the user named it.
    path: PathBuf,
    writer: Place,
}

#[derive(Debug)]
enum Place {
    /// A temporary file, and where it goes.
    Beside { writer: BufWriter<Synced>, target: PathBuf },
    /// A pipe or a device: there is nothing to rename.
    Direct(BufWriter<File>),
}

const BUFFER_BYTES: usize = 64 * 1024;

/// Names of what is open, such as standard output. Where that goes to a file, putting another in its place would do away
/// with what is in there.
const OPEN_FILES: [&str; 4] = ["/dev/stdout", "/dev/stderr", "/dev/fd", "/proc"];

/// After how many bytes the disk is asked to keep what it was given.
const SYNC_BYTES: usize = 4 * 1024 * 1024;

/// A temporary file that the disk begins to keep while it is still written, so that there is little to wait for at its end.
#[derive(Debug)]
struct Synced {
    file: NamedTempFile,
    syncing: Option<JoinHandle<io::Result<()>>>,
    unsynced: usize,
}

impl Synced {
    /// Waits until the disk keeps what it was asked for, and tells how that went: the system tells of a failure only once.
    fn synced(&mut self) -> io::Result<()> {
        let failed = |_| Err(io::Error::other("the thread that waits for the disk failed"));
        self.syncing.take().map_or(Ok(()), |syncing| syncing.join().unwrap_or_else(failed))
    }

    /// The file, once the disk keeps it.
    fn finish(mut self) -> io::Result<NamedTempFile> {
        self.synced()?;
        self.file.as_file().sync_all()?;
        Ok(self.file)
    }
}

impl Write for Synced {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.unsynced += written;
        if self.unsynced >= SYNC_BYTES && self.syncing.as_ref().is_none_or(JoinHandle::is_finished) {
            self.unsynced = 0;
            self.synced()?;
            let file = self.file.as_file().try_clone()?;
            self.syncing = Some(thread::spawn(move || file.sync_data()));
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl AtomicFile {
    /// Makes the temporary file.
    ///
    /// # Errors
    ///
    /// Where that fails, as in a directory that does not exist.
    pub fn create(path: &Path) -> Result<Self, SinkError> {
        let fail = |error| SinkError::File { path: path.to_owned(), replaced: false, error };
        let existing = match fs::metadata(path) {
            Ok(metadata) => Some(metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(fail(error)),
        };
        if existing.as_ref().is_some_and(fs::Metadata::is_dir) {
            return Err(fail(io::Error::other("it is a directory")));
        }
        let is_file = existing.as_ref().is_some_and(fs::Metadata::is_file);
        if is_file && OPEN_FILES.iter().any(|open| path.starts_with(open)) {
            let error = "it stands for a file that is open already: name that file itself, or take --to stdout";
            return Err(fail(io::Error::other(error)));
        }
        if existing.as_ref().is_some_and(|metadata| !metadata.is_file()) {
            let file = OpenOptions::new().write(true).open(path).map_err(fail)?;
            let writer = Place::Direct(BufWriter::with_capacity(BUFFER_BYTES, file));
            return Ok(Self { path: path.to_owned(), writer });
        }
        // Through a link, to what it stands for.
        let target = match existing {
            Some(_) => fs::canonicalize(path).map_err(fail)?,
            None => path.to_owned(),
        };
        let directory = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // Asked for itself, since what fails below names the temporary file.
        fs::metadata(directory).map_err(fail)?;
        let name = target.file_name().ok_or_else(|| fail(io::Error::other("it names no file")))?.to_string_lossy();
        let prefix = format!(".{name}.");
        let mut builder = tempfile::Builder::new();
        builder.prefix(&prefix).rand_bytes(RANDOM_CHARS).suffix(SUFFIX);
        #[cfg(unix)]
        let mode = {
            use std::os::unix::fs::PermissionsExt;
            let mode = existing.as_ref().map_or(0o666, |metadata| metadata.permissions().mode() & 0o7777);
            fs::Permissions::from_mode(mode)
        };
        #[cfg(unix)]
        builder.permissions(mode);
        let file = builder.tempfile_in(directory).map_err(fail)?;
        TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner).insert(file.path().to_owned());
        let file = Synced { file, syncing: None, unsynced: 0 };
        let writer = Place::Beside { writer: BufWriter::with_capacity(BUFFER_BYTES, file), target };
        Ok(Self { path: path.to_owned(), writer })
    }

    /// The path as the user named it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// An error of this file, with its name.
    #[must_use]
    pub fn error(&self, error: io::Error) -> SinkError {
        SinkError::File { path: self.path.clone(), replaced: matches!(self.writer, Place::Direct(_)), error }
    }

    /// Puts the file in its place.
    ///
    /// # Errors
    ///
    /// Where the rest cannot be written or the file not be renamed.
    pub fn commit(self) -> Result<(), SinkError> {
        let path = self.path;
        match self.writer {
            Place::Direct(mut writer) => {
                writer.flush().map_err(|error| SinkError::File { path, replaced: true, error })
            }
            Place::Beside { writer, target } => {
                let fail = |error| SinkError::File { path, replaced: false, error };
                let written = writer.into_inner().map_err(io::IntoInnerError::into_error);
                let renamed = written.and_then(|file| {
                    let file = file.finish()?;
                    let temporary = file.path().to_owned();
                    file.persist(&target).map_err(|error| error.error)?;
                    TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner).remove(&temporary);
                    Ok(())
                });
                renamed.map_err(fail)
            }
        }
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.writer {
            Place::Beside { writer, .. } => writer.write(bytes),
            Place::Direct(writer) => writer.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.writer {
            Place::Beside { writer, .. } => writer.flush(),
            Place::Direct(writer) => writer.flush(),
        }
    }
}

/// Writes a whole small file at once.
///
/// # Errors
///
/// Where it cannot be written.
pub fn write_file(path: &Path, content: &[u8]) -> Result<(), SinkError> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(content).map_err(|error| file.error(error))?;
    file.commit()
}
