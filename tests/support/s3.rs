//! S3 for tests: a real service over a folder, in this process, and what a network and its service make of its answers.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use md5::{Digest, Md5};
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, HttpRequest};
use s3s_fs::FileSystem;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::time::sleep;

/// What the services run on, for as long as the tests do.
static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap());

/// A bucket that every service has.
pub const BUCKET: &str = "ais";

// ---- calls and answers --------------------------------------------------------------------------------------------------

/// One request.
#[derive(Clone, Debug)]
pub struct Call {
    /// Line and headers.
    pub head: String,
    /// From 0, over all that read an object.
    pub number: usize,
}

impl Call {
    /// Path and query, as they were sent.
    pub fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap()
    }

    pub fn is_list(&self) -> bool {
        self.target().contains("list-type=2")
    }

    /// Whether it reads an object, rather than asks about one.
    pub fn is_read(&self) -> bool {
        !self.is_list() && self.header("range") != Some("bytes=0-0")
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    /// First and last byte that are asked for.
    pub fn range(&self) -> Option<(u64, u64)> {
        let (first, last) = self.header("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse().unwrap(), last.parse().unwrap()))
    }
}

/// What becomes of a call.
#[derive(Clone, Debug)]
pub enum Fate {
    /// It is answered.
    Answered,
    /// Its answer breaks off after so many bytes of the body, and the connection is gone.
    Cut(usize),
    /// Its answer ends after so many bytes of the body, cleanly: the connection is closed as the end of a body.
    Short(usize),
    /// The same with a length that agrees.
    ShortLength(usize),
    /// Its answer gives so many bytes of the body and then nothing, for as long as a client could wait.
    Stalled(usize),
    /// It is answered as if it had named no range.
    WithoutRange,
    /// Its answer has this header, in place of its own.
    With(&'static str, String),
    /// The service says no: status, headers, code, and what stands in the XML beside it.
    Refused(u16, &'static str, &'static str, &'static str),
}

type Script = Arc<dyn Fn(&Call) -> Fate + Send + Sync>;

/// How a service is set up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup {
    /// Everybody may read it, and nobody may sign.
    pub is_public: bool,
    /// Lists without ETags, as some stores give them.
    pub lists_without_etags: bool,
}

// ---- the service --------------------------------------------------------------------------------------------------------

/// An S3 of a test's own, with one bucket.
pub struct S3 {
    folder: TempDir,
    port: u16,
    calls: Arc<Mutex<Vec<Call>>>,
    script: Arc<Mutex<Script>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for S3 {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl S3 {
    pub fn start() -> Self {
        Self::with(Setup::default())
    }

    pub fn with(setup: Setup) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(BUCKET)).unwrap();
        let mut builder = S3ServiceBuilder::new(FileSystem::new(folder.path()).unwrap());
        if !setup.is_public {
            builder.set_auth(SimpleAuth::from_single("test", "test"));
        }
        let service = builder.build();
        let listener = RUNTIME.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let port = listener.local_addr().unwrap().port();
        let calls: Arc<Mutex<Vec<Call>>> = Arc::default();
        let script: Arc<Mutex<Script>> = Arc::new(Mutex::new(Arc::new(|_: &Call| Fate::Answered)));
        let front = Front {
            service,
            calls: Arc::clone(&calls),
            script: Arc::clone(&script),
            root: folder.path().to_owned(),
            setup,
        };
        let front = Arc::new(front);
        let task = RUNTIME.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let front = Arc::clone(&front);
                // A client that went away is nobody's failure.
                tokio::spawn(async move { front.serve(client).await.unwrap_or_default() });
            }
        });
        Self { folder, port, calls, script, task }
    }

    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// What the bucket holds, as files.
    pub fn path(&self, key: &str) -> PathBuf {
        self.folder.path().join(BUCKET).join(key)
    }

    pub fn put(&self, key: &str, bytes: &[u8]) {
        let path = self.path(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// From now on, calls end so. What was seen before is forgotten.
    pub fn script(&self, script: impl Fn(&Call) -> Fate + Send + Sync + 'static) {
        *self.script.lock().unwrap() = Arc::new(script);
        self.calls.lock().unwrap().clear();
    }

    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    /// The binary with nothing in its environment but this service and credentials for it.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ais-replay"));
        command.env_clear().current_dir(self.folder.path()).env("HOME", self.folder.path());
        command.env("AWS_REGION", "eu-north-1").env("AWS_EC2_METADATA_DISABLED", "true");
        command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "test");
        command.env("AWS_ENDPOINT_URL_S3", self.endpoint()).args(arguments);
        command
    }
}

struct Front {
    service: S3Service,
    calls: Arc<Mutex<Vec<Call>>>,
    script: Arc<Mutex<Script>>,
    root: PathBuf,
    setup: Setup,
}

/// Status, headers and body.
type Answer = (u16, Vec<(String, String)>, Vec<u8>);

impl Front {
    async fn serve(&self, mut client: TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        let mut buffer = Vec::new();
        while let Some(head) = request(&mut client, &mut buffer).await? {
            let call = self.note(head);
            let fate = self.script.lock().unwrap().clone()(&call);
            let (status, mut headers, body) = match &fate {
                Fate::Refused(status, header, code, detail) => refusal(*status, header, code, detail),
                Fate::WithoutRange => self.answer(&call, false).await,
                _ => self.answer(&call, true).await,
            };
            let set = |headers: &mut Vec<(String, String)>, name: &str, value: Option<&str>| {
                headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
                headers.extend(value.map(|value| (name.to_owned(), value.to_owned())));
            };
            set(&mut headers, "content-length", Some(&body.len().to_string()));
            let (given, closes, stalls) = match &fate {
                Fate::Cut(bytes) => (*bytes, true, false),
                Fate::Short(bytes) => {
                    set(&mut headers, "content-length", None);
                    set(&mut headers, "connection", Some("close"));
                    (*bytes, true, false)
                }
                Fate::ShortLength(bytes) => {
                    set(&mut headers, "content-length", Some(&bytes.min(&body.len()).to_string()));
                    (*bytes, false, false)
                }
                Fate::Stalled(bytes) => (*bytes, true, true),
                Fate::With(name, value) => {
                    set(&mut headers, name, Some(value));
                    (body.len(), false, false)
                }
                Fate::Answered | Fate::WithoutRange | Fate::Refused(..) => (body.len(), false, false),
            };
            let fields: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            client.write_all(format!("HTTP/1.1 {status} .\r\n{fields}\r\n").as_bytes()).await?;
            client.write_all(&body[..given.min(body.len())]).await?;
            client.flush().await?;
            if stalls {
                sleep(Duration::from_secs(60)).await;
            }
            if closes {
                return client.shutdown().await;
            }
        }
        Ok(())
    }

    fn note(&self, head: String) -> Call {
        let mut calls = self.calls.lock().unwrap();
        let number = calls.iter().filter(|call| call.is_read()).count();
        let call = Call { head, number };
        calls.push(call.clone());
        call
    }

    async fn answer(&self, call: &Call, with_range: bool) -> Answer {
        let mut request = HttpRequest::new(Body::empty());
        *request.uri_mut() = call.target().parse().unwrap();
        for (name, value) in call.head.lines().skip(1).filter_map(|line| line.split_once(':')) {
            if with_range || !name.eq_ignore_ascii_case("range") {
                // Only to say of which type it is.
                let mut field = s3s::header::X_AMZ_CHECKSUM_MODE;
                field = name.parse().unwrap_or(field);
                request.headers_mut().append(field, value.trim().parse().unwrap());
            }
        }
        let mut answer = self.service.call(request).await.unwrap();
        let headers = answer.headers().iter();
        let headers = headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
        let status = answer.status().as_u16();
        let mut body = answer.body_mut().store_all_limited(1 << 30).await.unwrap().to_vec();
        if call.is_list() && status == 200 && !self.setup.lists_without_etags {
            body = self.as_aws_lists(&String::from_utf8(body).unwrap()).into_bytes();
        }
        (status, headers, body)
    }

    /// A list with an ETag for each object, which the service leaves out, and with the key of no bytes that a console makes of
    /// each folder on the page.
    fn as_aws_lists(&self, list: &str) -> String {
        let mut folders = Vec::new();
        let mut parts = list.split("<Contents>");
        let mut listed = parts.next().unwrap().to_owned();
        for part in parts {
            let (_, key) = part.split_once("<Key>").unwrap();
            let key = key.split_once("</Key>").unwrap().0;
            if let Some((folder, _)) = key.rsplit_once('/')
                && !folders.contains(&folder)
            {
                listed += &format!("<Contents><Key>{folder}/</Key><Size>0</Size></Contents>");
                folders.push(folder);
            }
            let named = [("&lt;", "<"), ("&gt;", ">"), ("&apos;", "'"), ("&quot;", "\""), ("&amp;", "&")];
            let path = named.iter().fold(key.to_owned(), |key, (name, character)| key.replace(name, character));
            let path = self.root.join(BUCKET).join(path);
            listed += &format!("<Contents><ETag>&quot;{}&quot;</ETag>{part}", etag(&path));
        }
        listed
    }
}

/// MD5, as S3 makes the ETag of an object that came in one piece.
fn etag(path: &Path) -> String {
    Md5::digest(fs::read(path).unwrap()).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn refusal(status: u16, header: &str, code: &str, detail: &str) -> Answer {
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>the service of a test says \
         so</Message>{detail}<RequestId>1</RequestId></Error>"
    );
    let headers = [header.split_once(": "), Some(("content-type", "application/xml"))];
    let headers = headers.into_iter().flatten().map(|(name, value)| (name.to_owned(), value.to_owned()));
    (status, headers.collect(), body.into_bytes())
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

/// The head of the next request, none of which here has a body; `None` where the stream ends before it.
async fn request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Option<String>> {
    loop {
        if let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = buffer.split_off(end + 4);
            let head = std::mem::replace(buffer, rest);
            return Ok(Some(String::from_utf8_lossy(&head).trim_end().to_owned()));
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}
