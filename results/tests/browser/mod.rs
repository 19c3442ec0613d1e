//! A headless Chromium, spoken to by its debugging pipe: one JSON message after the other, each ended by a zero byte. No port, no network.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

/// A browser that hangs is ended after so many seconds.
const LIFE_S: u64 = 280;

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    to: File,
    from: BufReader<File>,
    session: Option<String>,
    sent: u64,
    /// Exceptions, errors and warnings that it told of.
    pub(crate) trouble: Vec<String>,
    _folder: tempfile::TempDir,
}

fn program() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let all =
        std::env::split_paths(&folders).flat_map(|folder| names.map(|name| folder.join(name)));
    all.into_iter().find(|path| path.is_file())
}

impl Browser {
    /// Starts one. None, with a line, where there is no Chromium; that is a failure if `VRAMLAB_REQUIRE_BROWSER=1`.
    pub(crate) fn start(test: &str) -> Option<Self> {
        let Some(program) = program() else {
            let required = std::env::var("VRAMLAB_REQUIRE_BROWSER").is_ok_and(|v| v == "1");
            assert!(!required, "{test}: no chromium on the path, and VRAMLAB_REQUIRE_BROWSER=1");
            println!("{test}: skipped, no chromium on the path");
            return None;
        };
        let folder = tempfile::tempdir().expect("a folder");
        let place = |name: &str| folder.path().join(name);
        let made = Command::new("mkfifo").args([place("to"), place("from")]).status();
        assert!(made.expect("mkfifo starts").success(), "mkfifo");
        let child = Command::new("sh")
            .arg("-c")
            .arg(
                r#"exec timeout "$3" "$4" --headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update --disable-sync --user-data-dir="$2" --remote-debugging-pipe 3<"$0" 4>"$1""#,
            )
            .args([place("to"), place("from"), place("profile")])
            .arg(LIFE_S.to_string())
            .arg(program)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell starts");
        // opened in the order in which the shell opens the other ends
        let to = File::options().write(true).open(place("to")).expect("opens");
        let from = BufReader::new(File::open(place("from")).expect("opens"));
        let (session, trouble) = (None, Vec::new());
        let mut browser = Self { child, to, from, session, sent: 0, trouble, _folder: folder };
        let target = browser.ask("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.ask("Target.attachToTarget", attach);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            browser.ask(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Sends a command and waits for its result.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        self.sent += 1;
        let mut message = json!({"id": self.sent, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{message}\0").as_bytes()).expect("the browser listens");
        loop {
            let mut line = Vec::new();
            self.from.read_until(0, &mut line).expect("the browser answers");
            assert_eq!(line.pop(), Some(0), "{method}: the browser ended");
            let mut heard: Value = serde_json::from_slice(&line).expect("JSON");
            if heard["id"] == json!(self.sent) {
                assert!(heard["error"].is_null(), "{method}: {}", heard["error"]);
                return heard["result"].take();
            }
            let told = &heard["params"];
            match heard["method"].as_str() {
                Some("Runtime.exceptionThrown" | "Log.entryAdded") => {
                    self.trouble.push(told.to_string());
                }
                Some("Runtime.consoleAPICalled")
                    if told["type"] == "error" || told["type"] == "warning" =>
                {
                    self.trouble.push(told.to_string());
                }
                _ => {}
            }
        }
    }

    /// What a script gives; it may wait.
    pub(crate) fn script(&mut self, script: &str) -> Value {
        let asked = json!({"expression": script, "awaitPromise": true, "returnByValue": true});
        let mut gave = self.ask("Runtime.evaluate", asked);
        assert!(gave["exceptionDetails"].is_null(), "{script}: {}", gave["exceptionDetails"]);
        gave["result"]["value"].take()
    }

    /// Opens a file, and waits until a condition holds.
    pub(crate) fn open(&mut self, file: &Path, until: &str) {
        self.ask("Page.navigate", json!({"url": format!("file://{}", file.display())}));
        for _ in 0..600 {
            if self.script(until) == json!(true) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{}: {until} does not come; {:?}", file.display(), self.trouble);
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // what ends a browser's guard by force would leave the browser itself
        let _ = self.to.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let _ = self.child.wait();
    }
}
