//! The header `traceparent` of W3C Trace Context, version 00.

use std::sync::Arc;

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

/// Length of a `traceparent`: version, trace id, span id and flags, in hexadecimal, with hyphens between them.
const LEN: usize = 55;

/// Whether a text is a `traceparent` that can be continued.
pub fn is_well_formed(text: &str) -> bool {
    parse(text).is_some()
}

/// The trace context of a `traceparent`; `None` for one that is not well formed.
pub(crate) fn parse(text: &str) -> Option<SpanContext> {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let bytes = text.as_bytes();
    let hyphens = [2, 35, 52];
    let is_legal = |(at, byte): (usize, &u8)| match hyphens.contains(&at) {
        true => *byte == b'-',
        false => is_hex(*byte),
    };
    if bytes.len() != LEN || !bytes.iter().enumerate().all(is_legal) || &text[..2] == "ff" {
        return None;
    }
    let trace = TraceId::from_hex(&text[3..35]).ok()?;
    let span = SpanId::from_hex(&text[36..52]).ok()?;
    let flags = TraceFlags::new(u8::from_str_radix(&text[53..], 16).ok()?);
    let context = SpanContext::new(trace, span, flags, true, TraceState::NONE);
    context.is_valid().then_some(context)
}

/// The `traceparent` of a trace context.
pub(crate) fn format(context: &SpanContext) -> Arc<str> {
    let (trace, span) = (context.trace_id(), context.span_id());
    let flags = context.trace_flags() & TraceFlags::SAMPLED;
    Arc::from(format!("00-{trace}-{span}-{flags:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_traceparent_is_parsed_and_written_unchanged() {
        let context = parse(GOOD).unwrap();
        assert!(context.is_remote() && context.is_sampled());
        assert_eq!(&*format(&context), GOOD);
        let unsampled = GOOD.replace("-01", "-00");
        assert!(!parse(&unsampled).unwrap().is_sampled());
        assert_eq!(*format(&parse(&unsampled).unwrap()), *unsampled);
    }

    #[test]
    fn a_traceparent_that_is_not_well_formed_is_none() {
        let zeros = "0".repeat(32);
        for bad in [
            "",
            "00-nonsense",
            &GOOD[..54],
            &format!("{GOOD}0"),
            &GOOD.to_uppercase(),
            &GOOD.replacen("00", "ff", 1),
            &GOOD.replace('-', "0"),
            &GOOD.replace('7', "é"),
            &GOOD.replace("0af7651916cd43dd8448eb211c80319c", &zeros),
            &GOOD.replace("b7ad6b7169203331", &zeros[..16]),
        ] {
            assert!(!is_well_formed(bad), "{bad}");
        }
        assert!(is_well_formed(GOOD));
    }
}
