//! A headless Chromium, driven over the Chrome DevTools Protocol: enough of it to open a page as a
//! phone, a desktop, in the dark and on paper, and to use it.
//!
//! Protocol: <https://chromedevtools.github.io/devtools-protocol/>. The browser writes its address
//! into `DevToolsActivePort` in its profile. Everything that a page logs, throws, requests or fails
//! to load is kept.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tungstenite::stream::MaybeTlsStream;
use tungstenite::{Message, WebSocket};

/// Longest wait for anything; only against hanging.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug)]
pub struct View {
    pub name: &'static str,
    pub width: u32,
    pub height: u32,
    pub phone: bool,
    pub dark: bool,
}

pub struct Browser {
    child: Child,
    socket: WebSocket<MaybeTlsStream<TcpStream>>,
    session: String,
    next_id: u64,
    pub complaints: Vec<String>,
    loads: u64,
}

/// The browser on this machine: the one that `BUSWAY_CHROMIUM` names, or one on the path.
pub fn find() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("BUSWAY_CHROMIUM") {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome", "chrome"];
    std::env::split_paths(&path)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|program| program.is_file())
}

impl Browser {
    pub fn start(program: &Path, folder: &Path) -> Self {
        let profile = folder.join(format!("profile-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&profile);
        std::fs::create_dir_all(&profile).expect("the folder for temporary files can be written");
        let child = Command::new(program)
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
            ])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
                "--hide-scrollbars",
            ])
            .args(["--remote-debugging-port=0", "about:blank"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the browser starts");
        let address = address(&profile);
        let (socket, _) = tungstenite::connect(&address).expect("the browser answers");
        if let MaybeTlsStream::Plain(stream) = socket.get_ref() {
            stream
                .set_read_timeout(Some(PATIENCE))
                .expect("a timeout can be set");
        }
        let mut this = Self {
            child,
            socket,
            session: String::new(),
            next_id: 0,
            complaints: Vec::new(),
            loads: 0,
        };
        let page = this.call("Target.createTarget", json!({"url": "about:blank"}));
        let attached = this.call(
            "Target.attachToTarget",
            json!({"targetId": page["targetId"], "flatten": true}),
        );
        this.session = attached["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            this.call(&format!("{domain}.enable"), json!({}));
        }
        this
    }

    pub fn open(&mut self, file: &Path, view: View) {
        self.open_address(&format!("file://{}", file.display()), view);
    }

    /// Whether pages may run scripts; [`evaluate`](Self::evaluate) always may.
    pub fn allow_scripts(&mut self, allowed: bool) {
        self.call("Emulation.setScriptExecutionDisabled", json!({"value": !allowed}));
    }

    /// Presses a key and lets it go.
    pub fn key(&mut self, key: &str, code: &str, number: u32) {
        let text = if key.len() == 1 { key } else { "" };
        for (kind, text) in [("keyDown", text), ("keyUp", "")] {
            self.call(
                "Input.dispatchKeyEvent",
                json!({"type": kind, "key": key, "code": code, "text": text, "windowsVirtualKeyCode": number}),
            );
        }
    }

    pub fn move_pointer(&mut self, x: f64, y: f64) {
        self.call(
            "Input.dispatchMouseEvent",
            json!({"type": "mouseMoved", "x": x, "y": y}),
        );
    }

    pub fn open_address(&mut self, address: &str, view: View) {
        self.call(
            "Emulation.setDeviceMetricsOverride",
            json!({"width": view.width, "height": view.height, "deviceScaleFactor": 1, "mobile": view.phone}),
        );
        let scheme = if view.dark { "dark" } else { "light" };
        self.call(
            "Emulation.setEmulatedMedia",
            json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]}),
        );
        // It may have loaded before the browser has answered.
        let before = self.loads;
        self.call("Page.navigate", json!({"url": address}));
        while self.loads == before {
            self.next();
        }
    }

    pub fn evaluate(&mut self, expression: &str) -> Value {
        let answer = self.call(
            "Runtime.evaluate",
            json!({"expression": expression, "returnByValue": true}),
        );
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    pub fn screenshot(&mut self) -> Vec<u8> {
        let size = self.call("Page.getLayoutMetrics", json!({}))["cssContentSize"].clone();
        // More than this is not drawn in one piece.
        let height = size["height"].as_f64().unwrap_or(0.0).min(12_000.0);
        let clip = json!({"x": 0, "y": 0, "width": size["width"], "height": height, "scale": 1});
        let answer = self.call(
            "Page.captureScreenshot",
            json!({"format": "png", "captureBeyondViewport": true, "clip": clip}),
        );
        decoded(&answer["data"])
    }

    pub fn print_media(&mut self) {
        let dark = json!([{"name": "prefers-color-scheme", "value": "dark"}]);
        self.call(
            "Emulation.setEmulatedMedia",
            json!({"media": "print", "features": dark}),
        );
    }

    pub fn pdf(&mut self) -> Vec<u8> {
        let answer = self.call(
            "Page.printToPDF",
            json!({"paperWidth": 8.27, "paperHeight": 11.69, "printBackground": true, "preferCSSPageSize": true}),
        );
        decoded(&answer["data"])
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.next_id += 1;
        let id = self.next_id;
        let mut request = json!({"id": id, "method": method, "params": parameters});
        if !self.session.is_empty() {
            request["sessionId"] = json!(self.session);
        }
        self.socket
            .send(Message::text(request.to_string()))
            .expect("the browser listens");
        loop {
            let message = self.next();
            if message["id"] == json!(id) {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
        }
    }

    fn next(&mut self) -> Value {
        loop {
            let text = match self.socket.read() {
                Ok(Message::Text(text)) => text,
                Ok(_) => continue,
                // A signal, or a machine that stood still.
                Err(tungstenite::Error::Io(error)) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => panic!("the browser does not answer: {error}"),
            };
            let message: Value = serde_json::from_str(&text).expect("the browser speaks JSON");
            self.note(&message);
            return message;
        }
    }

    fn note(&mut self, message: &Value) {
        let parameters = &message["params"];
        self.loads += u64::from(message["method"] == "Page.loadEventFired");
        let complaint = match message["method"].as_str() {
            Some(
                "Runtime.consoleAPICalled"
                | "Runtime.exceptionThrown"
                | "Log.entryAdded"
                | "Network.loadingFailed",
            ) => Some(parameters.to_string()),
            Some("Network.requestWillBeSent") => {
                let url = parameters["request"]["url"].as_str().unwrap_or_default();
                (parameters["type"] != "Document").then(|| format!("the page requested {url}"))
            }
            Some("Page.javascriptDialogOpening") => Some("the page opened a dialog".to_owned()),
            _ => None,
        };
        self.complaints.extend(complaint);
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn address(profile: &Path) -> String {
    let begun = Instant::now();
    loop {
        let said = std::fs::read_to_string(profile.join("DevToolsActivePort")).unwrap_or_default();
        if let [port, path] = said.lines().collect::<Vec<_>>()[..] {
            return format!("ws://127.0.0.1:{port}{path}");
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "the browser did not say where it listens"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn decoded(base64: &Value) -> Vec<u8> {
    use base64::Engine as _;
    base64::prelude::BASE64_STANDARD
        .decode(base64.as_str().unwrap_or_default())
        .expect("the browser encodes well")
}
