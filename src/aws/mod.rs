//! The way to AWS that tables, objects and streams share.

#[cfg(feature = "aws")]
pub mod connection;
#[cfg(feature = "aws")]
pub mod trouble;
#[cfg(feature = "aws")]
pub mod waits;

use std::fmt;
use std::sync::Arc;

/// How AWS is reached. What is not given comes from the standard configuration and environment of AWS.
#[derive(Clone, Debug, Default)]
pub struct AwsOptions {
    /// Profile of the shared configuration.
    pub profile: Option<String>,
    /// Region.
    pub region: Option<String>,
    /// Another endpoint than AWS's own.
    pub endpoint_url: Option<String>,
    /// Who is told when the run has to wait.
    pub watcher: Watcher,
}

/// Is told in a sentence what a run waits for; unless it is made otherwise, nobody is. It may be told by any thread.
#[derive(Clone)]
pub struct Watcher(Arc<dyn Fn(&str) + Send + Sync>);

impl Watcher {
    /// One that does this with the sentence.
    #[must_use]
    pub fn new(tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    /// Tells it.
    pub fn tell(&self, sentence: &str) {
        (self.0)(sentence);
    }
}

impl Default for Watcher {
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watcher")
    }
}
