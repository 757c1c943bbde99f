//! Server-sent events, read from a response as they arrive.

/// Most bytes of one event. Those of this server are far smaller.
const EVENT_BYTES_MAX: usize = 256 * 1024;

/// An event of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerEvent {
    /// What it is.
    pub(crate) name: String,
    /// The position behind it.
    pub(crate) id: String,
    /// JSON.
    pub(crate) data: String,
}

/// Splits the bytes of a response into events.
#[derive(Debug, Default)]
pub(crate) struct EventReader {
    /// Bytes that do not end a line yet.
    line: Vec<u8>,
    event: ServerEvent,
}

impl EventReader {
    /// The events that end with these bytes; `None` if they are no events.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Option<Vec<ServerEvent>> {
        let mut events = Vec::new();
        for byte in bytes {
            if *byte != b'\n' {
                self.line.push(*byte);
                if self.line.len() + self.event.data.len() > EVENT_BYTES_MAX {
                    return None;
                }
                continue;
            }
            let line = String::from_utf8(std::mem::take(&mut self.line)).ok()?;
            let line = line.trim_end_matches('\r');
            if line.is_empty() {
                let event = std::mem::take(&mut self.event);
                if !event.data.is_empty() {
                    events.push(event);
                }
                continue;
            }
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match name {
                "event" => value.clone_into(&mut self.event.name),
                "id" => value.clone_into(&mut self.event.id),
                "data" => self.event.data.push_str(value),
                // A comment, which begins with a colon, or a field that this program does not know.
                _ => {}
            }
        }
        Some(events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f_086_events_are_read_however_their_bytes_are_cut() {
        let text = ": hello\n\nevent: posted\nid: c1-1-1\ndata: {\"a\":\"\u{e4}\"}\n\nevent: ended\r\ndata: 2\r\n\r\n";
        let all = EventReader::default().read(text.as_bytes()).unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!((&*all[0].name, &*all[0].id), ("posted", "c1-1-1"));
        assert_eq!((&*all[0].data, &*all[1].data), ("{\"a\":\"\u{e4}\"}", "2"));
        let mut reader = EventReader::default();
        let bytes = text.as_bytes().iter();
        let one_by_one: Vec<_> = bytes
            .flat_map(|byte| reader.read(&[*byte]).unwrap())
            .collect();
        assert_eq!(one_by_one, all);
        let endless = vec![b'x'; EVENT_BYTES_MAX + 1];
        assert_eq!(EventReader::default().read(&endless), None);
    }
}
