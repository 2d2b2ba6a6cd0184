//! XML as EC2 writes it: elements and text, no attributes but the namespace.

use std::fmt::{Display, Write as _};

/// A document that is being written.
#[derive(Debug, Default)]
pub(crate) struct Xml(String);

impl Xml {
    /// An answer to an action, with what EC2 puts around every one.
    pub(crate) fn answer(action: &str, write: impl FnOnce(&mut Xml)) -> String {
        let mut xml = Xml(String::from(r#"<?xml version="1.0" encoding="UTF-8"?>"#));
        xml.0.push('\n');
        xml.push(format_args!(
            r#"<{action}Response xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">"#
        ));
        xml.text("requestId", request_id());
        write(&mut xml);
        xml.push(format_args!("</{action}Response>"));
        xml.0
    }

    /// An error, in the shape that EC2 alone uses.
    pub(crate) fn error(code: &str, message: &str) -> String {
        let mut xml = Xml(String::from(r#"<?xml version="1.0" encoding="UTF-8"?>"#));
        xml.0.push('\n');
        xml.within("Response", |xml| {
            xml.within("Errors", |xml| {
                xml.within("Error", |xml| {
                    xml.text("Code", code);
                    xml.text("Message", message);
                });
            });
            xml.text("RequestID", request_id());
        });
        xml.0
    }

    /// An error, in the shape of the other services that speak XML.
    pub(crate) fn query_error(code: &str, message: &str) -> String {
        let mut xml = Xml::default();
        xml.within("ErrorResponse", |xml| {
            xml.within("Error", |xml| {
                xml.text("Type", "Sender");
                xml.text("Code", code);
                xml.text("Message", message);
            });
            xml.text("RequestId", request_id());
        });
        xml.0
    }

    /// An element with text in it.
    pub(crate) fn text(&mut self, name: &str, value: impl Display) {
        let value = value.to_string();
        self.push(format_args!("<{name}>"));
        for letter in value.chars() {
            match letter {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                other => self.0.push(other),
            }
        }
        self.push(format_args!("</{name}>"));
    }

    /// An element with text in it, if there is any.
    pub(crate) fn text_if(&mut self, name: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.text(name, value);
        }
    }

    /// An element with elements in it.
    pub(crate) fn within(&mut self, name: &str, write: impl FnOnce(&mut Xml)) {
        self.push(format_args!("<{name}>"));
        write(self);
        self.push(format_args!("</{name}>"));
    }

    /// A list, as EC2 writes them.
    pub(crate) fn items<T>(
        &mut self,
        name: &str,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Xml, T),
    ) {
        self.within(name, |xml| {
            for item in items {
                xml.within("item", |xml| write(xml, item));
            }
        });
    }

    /// A list of texts.
    pub(crate) fn texts(&mut self, name: &str, items: impl IntoIterator<Item = impl Display>) {
        self.within(name, |xml| {
            for item in items {
                xml.text("item", item);
            }
        });
    }

    /// Tags, under the name that they have everywhere.
    pub(crate) fn tags<'a>(&mut self, tags: impl IntoIterator<Item = (&'a String, &'a String)>) {
        self.items("tagSet", tags, |xml, (key, value)| {
            xml.text("key", key);
            xml.text("value", value);
        });
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        self.0.write_fmt(text).expect("a String takes everything");
    }
}

/// A number for support, which nobody here gives.
pub(crate) fn request_id() -> String {
    let (high, low) = (fastrand::u64(..), fastrand::u64(..));
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        (low >> 48) & 0x3fff | 0x8000,
        low & 0xffff_ffff_ffff
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_lists_have_items() {
        let mut xml = Xml::default();
        xml.text("a", "<&>\"");
        xml.texts("b", ["x", "y"]);
        assert_eq!(xml.0, "<a>&lt;&amp;&gt;&quot;</a><b><item>x</item><item>y</item></b>");
    }
}
