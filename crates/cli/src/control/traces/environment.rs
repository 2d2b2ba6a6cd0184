//! Where traces go: the variables of OpenTelemetry, by its specification of environment variables.

use ondeck_core::model::secret::Secret;

/// A collector of traces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Collector {
    pub(super) url: Secret,
    /// What each request carries. The values are secrets, such as a token.
    pub(super) headers: Vec<(String, Secret)>,
    pub(super) service: String,
    /// The span that this process is a part of.
    pub(super) parent: Option<Parent>,
}

/// A span of another process, as `TRACEPARENT` names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) trace: String,
    pub(super) span: String,
}

impl Collector {
    /// The collector that the variables name; `None` if they name none, or switch traces off.
    pub(super) fn of(variable: impl Fn(&str) -> Option<String>) -> Option<Collector> {
        let variable = |name: &str| variable(name).filter(|text| !text.trim().is_empty());
        let url = match variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") {
            Some(url) => url.trim().to_owned(),
            None => {
                let base = variable("OTEL_EXPORTER_OTLP_ENDPOINT")?;
                format!("{}/v1/traces", base.trim().trim_end_matches('/'))
            }
        };
        let is = |name: &str, word: &str| {
            variable(name).is_some_and(|text| text.trim().eq_ignore_ascii_case(word))
        };
        if is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none") {
            return None;
        }
        let headers = variable("OTEL_EXPORTER_OTLP_TRACES_HEADERS")
            .or_else(|| variable("OTEL_EXPORTER_OTLP_HEADERS"))
            .unwrap_or_default();
        let parent = match variable("TRACEPARENT") {
            Some(text) => match Parent::parse(text.trim()) {
                // The process that began the trace does not record it.
                Some((_, false)) => return None,
                Some((parent, true)) => Some(parent),
                None => None,
            },
            None => None,
        };
        Some(Collector {
            url: Secret::new(url),
            headers: headers.split(',').filter_map(header).collect(),
            service: variable("OTEL_SERVICE_NAME").unwrap_or_else(|| "ondeck".to_owned()),
            parent,
        })
    }
}

impl Parent {
    /// Reads a `traceparent` of W3C Trace Context: the span, and whether it is recorded. `None` if it is
    /// none.
    fn parse(text: &str) -> Option<(Parent, bool)> {
        let mut parts = text.split('-');
        let mut next = |length: usize| {
            let part = parts.next()?;
            let fits = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            (part.len() == length && part.bytes().all(fits)).then(|| part.to_owned())
        };
        let (version, trace, span, flags) = (next(2)?, next(32)?, next(16)?, next(2)?);
        let is_known = version != "ff" && (version != "00" || parts.next().is_none());
        let is_zero = |id: &str| id.bytes().all(|byte| byte == b'0');
        if !is_known || is_zero(&trace) || is_zero(&span) {
            return None;
        }
        let is_recorded = u8::from_str_radix(&flags, 16).is_ok_and(|flags| flags & 1 == 1);
        Some((Parent { trace, span }, is_recorded))
    }
}

/// One header, as `name=value` with the value percent-encoded. `None` if it is none.
fn header(text: &str) -> Option<(String, Secret)> {
    let (name, value) = text.split_once('=')?;
    let name = name.trim().to_ascii_lowercase();
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || !name.bytes().all(fits) {
        return None;
    }
    let value = decoded(value.trim())?;
    let is_plain = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    value.bytes().all(is_plain).then(|| (name, Secret::new(value)))
}

/// A text without percent-encoding. A percent sign that begins no pair of digits stands for itself.
fn decoded(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let (mut made, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(at) {
        let pair = bytes.get(at + 1..at + 3).and_then(|pair| std::str::from_utf8(pair).ok());
        let is_pair = |pair: &&str| pair.bytes().all(|digit| digit.is_ascii_hexdigit());
        match pair.filter(|_| *byte == b'%').filter(is_pair) {
            Some(pair) => {
                made.push(u8::from_str_radix(pair, 16).ok()?);
                at += 3;
            }
            None => {
                made.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8(made).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collector(variables: &[(&str, &str)]) -> Option<Collector> {
        Collector::of(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, text)| (*text).to_owned())
        })
    }

    const BASE: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector/otlp/");
    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn the_endpoint_of_traces_is_taken_as_it_is_and_the_base_gets_a_path() {
        let url = |variables: &[(&str, &str)]| {
            collector(variables).map(|it| it.url.expose().to_owned()).unwrap_or_default()
        };
        const TRACES: (&str, &str) = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://traces/x");
        assert_eq!(url(&[BASE]), "https://collector/otlp/v1/traces");
        assert_eq!(url(&[BASE, TRACES]), "https://traces/x");
        for off in [
            &[][..],
            &[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")],
            &[BASE, ("OTEL_SDK_DISABLED", "True")],
            &[BASE, ("OTEL_TRACES_EXPORTER", "none")],
            &[BASE, ("TRACEPARENT", &PARENT.replace("-01", "-00"))],
        ] {
            assert_eq!(collector(off), None, "{off:?}");
        }
    }

    #[test]
    fn headers_are_decoded_and_what_is_none_is_left_out() {
        let given = "Authorization=Basic%20YTpi==, x-scope=a%2Cb,=x,none,bad=a%0ab,per=5%,é=1";
        let headers = collector(&[BASE, ("OTEL_EXPORTER_OTLP_HEADERS", given)]).unwrap().headers;
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
        let expected = [("authorization", "Basic YTpi=="), ("x-scope", "a,b"), ("per", "5%")];
        assert_eq!(headers, expected);
    }

    #[test]
    fn a_parent_is_read_as_trace_context_has_it() {
        let parent = |text: &str| collector(&[BASE, ("TRACEPARENT", text)]).unwrap().parent;
        let read = parent(PARENT).unwrap();
        assert_eq!(read.trace, "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(read.span, "b7ad6b7169203331");
        assert!(parent(&PARENT.replace("00-0", "01-0").replace("-01", "-01-more")).is_some());
        for none in [
            "x",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
        ] {
            assert_eq!(parent(none), None, "{none}");
        }
    }
}
