//! A release page on loopback, and a note of what was asked for.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::TaskError;

/// Serves the files of a folder until this program ends.
pub(super) struct Page {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Page {
    /// Serves the files of `dist` below `/vVERSION/`, as GitHub does.
    pub(super) fn serve(dist: &Path, version: &str) -> Result<Page, TaskError> {
        let failed = |error| TaskError::with(Path::new("127.0.0.1"), error);
        let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
        let url = format!("http://{}", listener.local_addr().map_err(failed)?);
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (dist, prefix, notes) = (dist.to_owned(), format!("/v{version}/"), asked.clone());
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                // A client that goes away does not matter to the next one.
                drop(answer(&connection, &dist, &prefix, &notes));
            }
        });
        Ok(Page { url, asked })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// The paths that were asked for.
    pub(super) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn answer(
    connection: &TcpStream,
    dist: &Path,
    prefix: &str,
    notes: &Mutex<Vec<String>>,
) -> io::Result<()> {
    let mut lines = BufReader::new(connection).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    // The rest of the request's head, without which a client may see a reset instead of an answer.
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let file = path.strip_prefix(prefix).and_then(|name| asset(dist, name));
    notes.lock().unwrap_or_else(PoisonError::into_inner).push(path);
    let mut out = connection;
    match file.map(File::open).transpose()? {
        None => out
            .write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"),
        Some(mut file) => {
            let length = file.metadata()?.len();
            write!(
                out,
                "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
            )?;
            io::copy(&mut file, &mut out).map(drop)
        }
    }
}

/// The file of this name, which is in the folder itself.
fn asset(dist: &Path, name: &str) -> Option<PathBuf> {
    let file = dist.join(name);
    (!name.contains('/') && file.is_file()).then_some(file)
}
